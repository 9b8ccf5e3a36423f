import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from pyserini_ance.encoders.checkpoint import load_encoder, start_encoder

SEED = 1


@pytest.fixture
def copy(tmp_path):
    """A copy of a model folder whose weights went through a function."""

    def make(folder, change):
        shutil.copytree(folder, tmp_path / "copy")
        weights = tmp_path / "copy" / "model.safetensors"
        save_file(change(load_file(weights)), weights, {"format": "pt"})
        return tmp_path / "copy"

    return make


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("l2", [False, True])
@pytest.mark.parametrize("model", ["tiny_bert", "tiny_roberta"])
def test_vectors_against_the_models_last_hidden_state(family, records, request, model, pooling, l2):
    folder = request.getfixturevalue(model)
    encoder = start_encoder(family("transformer", folder, pooling=pooling, l2=l2), SEED)
    vectors = encoder.encode(records, "document", tokens_per_batch=200)
    theirs, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for record, vector in zip(records, vectors, strict=True):
        text = f"{record['title']} {record['text']}".strip()
        inputs = tokenizer(text, truncation=True, max_length=48, return_tensors="pt")
        with torch.no_grad():
            hidden = theirs(**inputs).last_hidden_state[0]
        expected = hidden[0] if pooling == "cls" else sum(hidden) / len(hidden)
        expected = expected / expected.norm() if l2 else expected
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_saved_and_loaded_is_the_same(family, tiny_bert, saved, records, pooling):
    encoder = start_encoder(family("transformer", tiny_bert, pooling=pooling, l2=True), SEED)
    loaded = load_encoder(saved(encoder))
    np.testing.assert_array_equal(loaded.encode(records, "document"), encoder.encode(records, "document"))
    assert loaded.family.model_dump(exclude={"model"}) == encoder.family.model_dump(exclude={"model"})


def test_plain_transformers_load_what_was_saved(family, tiny_bert, saved, records):
    folder = saved(start_encoder(family("transformer", tiny_bert), SEED))
    theirs = AutoModel.from_pretrained(folder).state_dict()
    torch.testing.assert_close(theirs, AutoModel.from_pretrained(tiny_bert).state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_trained_in_full(family, tiny_bert, copy, stored):
    folder = copy(tiny_bert, lambda weights: {name: value.to(stored) for name, value in weights.items()})
    towers = start_encoder(family("transformer", folder), SEED).towers
    assert {parameter.dtype for parameter in towers.parameters()} == {torch.float32}


def test_a_pooler_that_the_weights_lack_is_drawn_from_the_seed(family, tiny_bert, copy):
    folder = copy(tiny_bert, lambda weights: {name: value for name, value in weights.items() if "pooler" not in name})
    state = torch.get_rng_state()
    first, again, other = (start_encoder(family("transformer", folder), seed).towers.state_dict() for seed in (1, 1, 2))
    name = "queries.backbone.pooler.dense.weight"
    assert torch.equal(first[name], again[name]) and not torch.equal(first[name], other[name])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_lost_weight_is_refused(family, tiny_bert, copy):
    lost = "encoder.layer.1.output.dense.weight"
    folder = copy(tiny_bert, lambda weights: {name: value for name, value in weights.items() if name != lost})
    with pytest.raises(RuntimeError, match=f"{folder} lacks 1 weights of the encoder, first {lost}"):
        start_encoder(family("transformer", folder), SEED)


def test_a_head_that_would_be_left_out_is_refused(family, tiny_roberta, copy):
    folder = copy(tiny_roberta, lambda weights: {**weights, "embeddingHead.weight": torch.zeros(8, 32)})
    with pytest.raises(RuntimeError, match="has an ANCE head, .* set encoder.kind=roberta_ance"):
        start_encoder(family("transformer", folder), SEED)


def test_a_slow_tokenizer_is_no_obstacle(family, tmp_path, tiny_bert):
    """A folder as old releases wrote it: a vocabulary without tokenizer.json."""
    BertModel(BertConfig(**AutoModel.from_pretrained(tiny_bert).config.to_dict())).save_pretrained(tmp_path)
    shutil.copy(tiny_bert / "vocab.txt", tmp_path)
    encoder = start_encoder(family("transformer", tmp_path), SEED)
    assert encoder.tokenizer.ids("query", [{"text": "the Query"}]) == [encoder.tokenizer.tokenizer.convert_tokens_to_ids(["the", "query"])]
