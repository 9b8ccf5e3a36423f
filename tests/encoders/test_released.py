"""Tiny checkpoints with the files, names and shapes of those that were released; vectors against the model they were made from."""

import json
import logging
import re
import shutil

import numpy as np
import pytest
import torch
from encoders.releases import LOWER, assert_same_vectors, weights_of
from safetensors.torch import load_file
from transformers import BertModel, BertTokenizer, DPRConfig, DPRContextEncoder, DPRQuestionEncoder

from pyserini_ance.encoders.checkpoint import load_encoder, start_encoder, start_tokenizer

SEED = 1
PAIR = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48, "template": "{title} [SEP] {text}"}}


def unused(hidden: int = 32) -> dict[str, torch.Tensor]:
    """What RobertaForSequenceClassification saves beside, and a buffer of older releases."""
    shapes = {"roberta.pooler.dense": (hidden, hidden), "classifier.dense": (hidden, hidden), "classifier.out_proj": (2, hidden)}
    weights = {f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    biases = {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items()}
    return {**weights, **biases, "roberta.embeddings.position_ids": torch.arange(514)[None]}


@pytest.mark.parametrize("prefix", ["", "ance_encoder."])
def test_ance_with_a_classifier_and_a_pooler_beside(ance, release, family, saved, records, prefix):
    """microsoft/ANCE saves bare names, castorini's folders say AnceEncoder, whose prefix Pyserini knows, too."""
    architecture = {"architectures": ["AnceEncoder"]} if prefix else {}
    folder = release({prefix + name: value for name, value in {**weights_of(ance), **unused()}.items()}, **architecture)
    started = start_encoder(family("roberta_ance", folder, dimension=16, tokenization=LOWER), SEED + 1)
    assert_same_vectors(started, ance, records)
    folder = saved(started)
    assert_same_vectors(load_encoder(folder), ance, records)
    assert load_file(folder / "model.safetensors").keys() == weights_of(ance).keys()


def test_star_has_a_size_of_its_own(ance, release, family, records):
    folder = release(weights_of(ance), architectures=["RobertaDot_InBatch"], output_embedding_size=16)
    assert_same_vectors(start_encoder(family("roberta_ance", folder, dimension=16, tokenization=LOWER), SEED), ance, records)
    with pytest.raises(ValueError, match="gives vectors of 16 numbers, but encoder.dimension is 768; set it to 16"):
        start_encoder(family("roberta_ance", folder, tokenization=LOWER), SEED)


def test_a_head_that_is_missing_is_named(ance, release, family):
    folder = release({name: value for name, value in weights_of(ance).items() if name != "norm.bias"})
    with pytest.raises(RuntimeError, match="is not a complete ANCE checkpoint: no norm.bias of the expected shape.*fetch the checkpoint again"):
        start_encoder(family("roberta_ance", folder, dimension=16), SEED)


@pytest.mark.parametrize("name", ["whitening.weight", "roberta.encoder.layer.2.output.dense.bias"])
def test_a_weight_that_vectors_may_pass_through_is_refused(ance, release, family, name):
    folder = release({**weights_of(ance), name: torch.zeros(16)})
    with pytest.raises(RuntimeError, match=f"holds 1 weights that this encoder has no place for, first {name}"):
        start_encoder(family("roberta_ance", folder, dimension=16), SEED)


def test_a_new_head_may_be_of_another_size_than_the_one_released(ance, release, family):
    folder = release(weights_of(ance), architectures=["RobertaDot_InBatch"], output_embedding_size=16)
    assert start_encoder(family("roberta_ance", folder, head="new", dimension=8), SEED).dimension == 8


@pytest.fixture(scope="module")
def dpr(tmp_path_factory, tiny_bert):
    """A question and a context encoder of Hugging Face's DPR classes; the second's weights are a tenth smaller."""
    folder, base = tmp_path_factory.mktemp("dpr"), BertModel.from_pretrained(tiny_bert, add_pooling_layer=False)
    config = DPRConfig(**{key: value for key, value in base.config.to_dict().items() if key not in ("model_type", "architectures")})
    for name, loader, inner, scale in (("q", DPRQuestionEncoder, "question_encoder", 1.0), ("c", DPRContextEncoder, "ctx_encoder", 0.9)):
        model = loader(config)
        getattr(model, inner).bert_model.load_state_dict({key: value * scale for key, value in base.state_dict().items()})
        model.save_pretrained(folder / name)
        BertTokenizer.from_pretrained(tiny_bert).save_pretrained(folder / name)
    return folder


def bert_pair(tiny_bert, folder):
    """The same two towers as plain BERTs."""
    for name, scale in (("queries", 1.0), ("documents", 0.9)):
        model = BertModel.from_pretrained(tiny_bert)
        model.load_state_dict({key: value * scale if "pooler" not in key else value for key, value in model.state_dict().items()})
        model.save_pretrained(folder / name)
        BertTokenizer.from_pretrained(tiny_bert).save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory, tiny_bert):
    return bert_pair(tiny_bert, tmp_path_factory.mktemp("pair"))


@pytest.fixture
def expected(family, pair):
    return start_encoder(
        family("transformer", pair / "queries", tied=False, document_model=str(pair / "documents"), tokenization=PAIR), SEED
    )  # fmt: skip


def test_dpr_folders(dpr, expected, family, saved, records):
    started = start_encoder(family("transformer", dpr / "q", tied=False, document_model=str(dpr / "c"), tokenization=PAIR), SEED)
    assert_same_vectors(started, expected, records)
    folder = saved(started)
    assert_same_vectors(load_encoder(folder), expected, records)
    assert BertModel.from_pretrained(folder / "documents").config.model_type == "bert"
    with pytest.raises(ValueError, match="is a DPR encoder of the document side; set encoder.tied=false, with the question encoder as model"):
        start_encoder(family("transformer", dpr / "c", tokenization=PAIR), SEED)


def dpr_file(pair, path):
    """As facebookresearch/DPR and microsoft/ANCE save: both towers, an optimiser, where training stood."""
    towers = {"question_model": "queries", "ctx_model": "documents"}
    states = {tower: BertModel.from_pretrained(pair / folder).state_dict() for tower, folder in towers.items()}
    model = {f"{tower}.{name}": value for tower, state in states.items() for name, value in state.items()}
    positions = {f"{tower}.embeddings.position_ids": torch.arange(128)[None] for tower in towers}
    beside = {"optimizer_dict": {"state": {}}, "scheduler_dict": {}, "offset": 0, "epoch": 3, "encoder_params": {"projection_dim": 0}}
    torch.save({"model_dict": {**model, **positions}, **beside}, path)
    return path


def test_a_dpr_file_of_both_towers(pair, expected, family, records, tiny_bert, tmp_path):
    file = dpr_file(pair, tmp_path / "multi.cp")
    started = start_encoder(family("transformer", file, tied=False, base=str(tiny_bert), tokenization=PAIR), SEED)
    assert_same_vectors(started, expected, records)
    with pytest.raises(ValueError, match="multi.cp holds two towers; set encoder.tied=false"):
        start_encoder(family("transformer", file, base=str(tiny_bert), tokenization=PAIR), SEED)
    with pytest.raises(FileNotFoundError, match="multi.cp comes without a tokenizer; name .* encoder.base=NAME"):
        start_tokenizer(family("transformer", file, tied=False, tokenization=PAIR))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model_dict": {"bert.pooler.dense.bias": torch.zeros(2)}}, "is no DPR checkpoint: its model_dict has no question_model"),
        ({"model_dict": {"question_model.embeddings.LayerNorm.bias": torch.zeros(32)}}, "lacks .* weights of the encoder, first embeddings"),
        ([1], "cannot be read as a DPR checkpoint"),
        ({"model_dict": logging.getLogger}, "cannot be read as a DPR checkpoint"),
    ],
)
def test_a_file_that_is_no_dpr_checkpoint(family, tiny_bert, tmp_path, content, message):
    torch.save(content, tmp_path / "x.cp")
    with pytest.raises(RuntimeError, match=message):
        start_encoder(family("transformer", tmp_path / "x.cp", tied=False, base=str(tiny_bert), tokenization=PAIR), SEED)


@pytest.fixture
def tevatron(pair, tmp_path, tiny_bert):
    """Two towers without tokenizers, which lie above them."""
    folder = tmp_path / "tevatron"
    for name, source in (("query_model", "queries"), ("passage_model", "documents")):
        shutil.copytree(pair / source, folder / name, ignore=shutil.ignore_patterns("*token*", "vocab*"))
    return folder


def test_a_pair_as_tevatron_writes_it(tevatron, expected, family, records, tiny_bert):
    with pytest.raises(FileNotFoundError, match="query_model comes without a tokenizer"):
        start_encoder(family("transformer", tevatron, tied=False, tokenization=PAIR), SEED)
    assert_same_vectors(start_encoder(family("transformer", tevatron, tied=False, base=str(tiny_bert), tokenization=PAIR), SEED), expected, records)
    BertTokenizer.from_pretrained(tiny_bert).save_pretrained(tevatron)
    assert_same_vectors(start_encoder(family("transformer", tevatron, tied=False, tokenization=PAIR), SEED), expected, records)
    with pytest.raises(ValueError, match="has two towers, query_model and passage_model; set encoder.tied=false"):
        start_encoder(family("transformer", tevatron, tokenization=PAIR), SEED)


def test_the_linear_head_of_tevatron(tevatron, expected, family, records, tiny_bert):
    heads = {f"linear_{side}.{name}": torch.randn(shape) for side in "qp" for name, shape in (("weight", (8, 32)), ("bias", (8,)))}
    torch.save(heads, tevatron / "pooler.pt")
    settings = {"tied": False, "base": str(tiny_bert), "tokenization": PAIR}
    started = start_encoder(family("transformer", tevatron, projection=8, **settings), SEED)
    for side, letter in (("query", "q"), ("document", "p")):
        projected = expected.encode(records, side) @ heads[f"linear_{letter}.weight"].numpy().T + heads[f"linear_{letter}.bias"].numpy()
        np.testing.assert_allclose(started.encode(records, side), projected, atol=1e-4)
    with pytest.raises(ValueError, match="pooler.pt of .*query_model projects 32 numbers to 8, but encoder.projection is None; set it to 8"):
        start_encoder(family("transformer", tevatron, **settings), SEED)


@pytest.mark.parametrize(
    ("architecture", "tokenization", "said"),
    [
        ("AnceEncoder", {"lowercase": True, "prefix_space": False, "query": {"length_tokens": 64}}, []),
        ("AnceEncoder", {"prefix_space": False}, ["lowercase is False, and .* was trained with True"]),
        ("RobertaDot", {"lowercase": True, "query": {"length_tokens": 65}}, ["length_tokens is 65, .* with 64", "prefix_space is None, .* True"]),
    ],
)
def test_settings_that_a_release_was_not_trained_under_are_told(ance, release, family, caplog, architecture, tokenization, said):
    folder = release(weights_of(ance), architectures=[architecture], output_embedding_size=16)
    start_encoder(family("roberta_ance", folder, dimension=16, tokenization=tokenization), SEED)
    assert len(caplog.messages) == len(said) and all(re.search(words, message) for words, message in zip(said, caplog.messages, strict=True))


def test_our_own_checkpoints_are_no_releases(ance, saved, family, caplog):
    start_encoder(family("roberta_ance", saved(ance), dimension=16, tokenization=LOWER), SEED)
    assert caplog.messages == []


def test_layers_of_sentence_transformers_behind_the_pooling_are_not_left_out(family, tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "sentences")
    modules = [{"type": f"sentence_transformers.models.{name}", "path": f"{i}_{name}"} for i, name in enumerate(("Pooling", "Normalize", "Dense"))]
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    start_encoder(family("transformer", folder), SEED)
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(RuntimeError, match="has layers behind its pooling, 2_Dense, which are not read"):
        start_encoder(family("transformer", folder), SEED)
