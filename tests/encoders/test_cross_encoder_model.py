"""A random cross-encoder against a slow loop: one pair at a time, by transformers alone."""

import numpy as np
import pytest
import torch
from helpers.families import make_family
from helpers.small_set import TINY_SHAPE, make_tiny_cross_encoder
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from pyserini_ance.encoders import cross_encoder_model
from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel, record_text
from pyserini_ance.encoders.hardware import DTYPES

PAIRS = [("query of a", "the title of it"), ("a", "x"), ("query", "document " * 60)]
PAIRS += [("title and text", "the"), ("", "of")]
LENGTH = 24


def slowly(folder, pairs, length: int) -> np.ndarray:
    """(P, labels) logits."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = (tokenizer(*pair, return_tensors="pt", truncation=True, max_length=length) for pair in pairs)
    with torch.no_grad():
        return torch.stack([model(**one).logits[0] for one in inputs]).numpy()


def test_pairs_in_batches_score_as_one_by_one(tiny_cross_encoder, monkeypatch):
    monkeypatch.setattr(cross_encoder_model, "BATCH_PAIRS", 2)
    model = CrossEncoderModel(str(tiny_cross_encoder), "cpu", length_tokens=LENGTH)
    expected = slowly(tiny_cross_encoder, PAIRS, LENGTH)[:, 0]
    np.testing.assert_allclose(model.logits(PAIRS), expected, rtol=0, atol=1e-5)
    assert model.logits(PAIRS).argsort().tolist() == expected.argsort().tolist() and np.ptp(expected) > 0.5
    assert model.logits([]).shape == (0,)


def test_a_causal_reranker_scores_by_the_logits_of_yes_and_no(tmp_path):
    folder = make_family(tmp_path / "model", "Qwen3")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["yes", "no"])
    config = AutoConfig.from_pretrained(folder, vocab_size=len(tokenizer))
    torch.manual_seed(3)
    reranker = AutoModelForCausalLM.from_config(config).eval()
    for part in (tokenizer, reranker):
        part.save_pretrained(tmp_path / "reranker")
    pairs = [pair for pair in PAIRS if len("".join(pair)) < config.max_position_embeddings]
    with torch.no_grad():
        last = [reranker(**tokenizer(*pair, return_tensors="pt")).logits[0, -1] for pair in pairs]
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    model = CrossEncoderModel(str(tmp_path / "reranker"), "cpu")
    np.testing.assert_allclose(model.logits(pairs), [one[yes] - one[no] for one in last], atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_weights_are_read_in_float32_unless_asked_otherwise_the_head_always(tiny_cross_encoder, precision):
    """transformers would take the precision of the file."""
    whole = CrossEncoderModel(str(tiny_cross_encoder), "cpu")
    half = CrossEncoderModel(str(tiny_cross_encoder), "cpu", precision=precision)
    assert {weight.dtype for weight in whole.model.parameters()} == {torch.float32}
    classifier = half.model[0].auto_model
    assert {weight.dtype for weight in classifier.bert.parameters()} == {DTYPES[precision]}
    assert {weight.dtype for weight in classifier.classifier.parameters()} == {torch.float32}
    scores, exact = half.logits(PAIRS), whole.logits(PAIRS)
    np.testing.assert_allclose(scores, exact, rtol=0, atol=0.5)
    rounded = torch.from_numpy(scores).to(DTYPES[precision]).float().numpy()
    assert scores.dtype == np.float32 and not (scores == exact).any() and not (scores == rounded).all()


@pytest.mark.parametrize("kind", ["deberta-v2", "xlm-roberta", "distilbert", "modernbert"])
def test_heads_of_other_models_stay_in_fp32(tiny_bert, tmp_path, kind):
    shape = {**TINY_SHAPE, "dim": 32, "n_heads": 4, "hidden_dim": 64, "pooler_hidden_size": 32}
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    shape |= {"vocab_size": len(tokenizer), "num_labels": 1, "pad_token_id": 0}
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(kind, **shape))
    model.save_pretrained(tmp_path / kind)
    tokenizer.save_pretrained(tmp_path / kind)
    settings = {"model": str(tmp_path / kind), "device": "cpu", "length_tokens": 20}
    exact, half = (CrossEncoderModel(**settings, precision=one) for one in ("fp32", "bf16"))
    pairs = [pair for pair in PAIRS if len(pair[1]) < 30]
    rounding = torch.finfo(torch.bfloat16).eps
    np.testing.assert_allclose(half.logits(pairs), exact.logits(pairs), rtol=rounding, atol=0.05)
    layers = (layer for layer in half.model.modules() if layer._forward_pre_hooks)
    outer = [weight for layer in layers for weight in layer.parameters()]
    assert outer and {weight.dtype for weight in outer} == {torch.float32}


def test_a_classifier_scores_by_the_difference_of_its_classes(tiny_bert, tmp_path):
    folder = make_tiny_cross_encoder(tmp_path / "two", tiny_bert, labels=2)
    model, expected = CrossEncoderModel(str(folder), "cpu"), slowly(folder, PAIRS, 128)
    np.testing.assert_allclose(model.logits(PAIRS), expected[:, 1] - expected[:, 0], rtol=0, atol=1e-5)
    model = CrossEncoderModel(str(make_tiny_cross_encoder(tmp_path / "three", tiny_bert, labels=3)), "cpu")
    with pytest.raises(ValueError, match="three gives 3 scores per pair, expected one .or two logits"):
        model.logits(PAIRS)


def test_a_length_beyond_the_positions_and_a_model_without_a_head_are_refused(tiny_cross_encoder, tiny_bert):
    model = CrossEncoderModel(str(tiny_cross_encoder), "cpu", length_tokens=128)
    assert np.isfinite(model.logits([("query", "document " * 200)])).all()
    with pytest.raises(ValueError, match="length_tokens is 129, but .* reads at most 128; lower it"):
        CrossEncoderModel(str(tiny_cross_encoder), "cpu", length_tokens=129)
    with pytest.raises(ValueError, match="is a BertModel, which has no head that scores pairs"):
        CrossEncoderModel(str(tiny_bert), "cpu")


def test_the_text_of_a_record():
    assert record_text({"title": "A", "text": "b c"}) == "A b c"
    assert record_text({"title": "", "text": "b"}) == "b"
