"""Tiny checkpoints of ANCE, STAR, ADORE and DANCE; vectors against the model they were made from."""

import argparse
import logging
import re
from types import SimpleNamespace

import pytest
import torch
from helpers.released_checkpoints import BESIDE_ANCE, HEAD, LOWER, ance_weights, assert_same_vectors
from sentence_transformers.base.modules import Normalize

from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.towers import Tower, TwoTower

FIRSTP, MULTI_CHUNK = "RobertaDot_NLL_LN", "RobertaDot_CLF_ANN_NLL_MultiChunk"
LIKE_DANCE = {"normalize": True, "layer_norm": "query"}
UNIT = {"representation_l2_normalization": True}


@pytest.mark.parametrize(
    ("architecture", "prefix"),
    [(FIRSTP, ""), (MULTI_CHUNK, ""), ("AnceEncoder", ""), ("AnceEncoder", "ance_encoder.")],
    ids=["firstp", "maxp", "castorini", "castorini, prefixed"],
)
def test_ance_beside_a_classifier_and_a_pooler(ance, release, start, saved, records, architecture, prefix):
    """microsoft/ANCE's config.json names no model_type; castorini's class has a prefix, as Pyserini knows."""
    beside = {prefix + name: torch.randn(shape) for name, shape in BESIDE_ANCE.items()}
    # a buffer of older releases
    beside[prefix + "roberta.embeddings.position_ids"] = torch.arange(514)[None]
    config = {"architectures": [architecture]}
    config |= {"model_type": "roberta"} if architecture == "AnceEncoder" else {}
    weights = {**ance_weights(ance, prefix), **beside}
    folder = release(weights, without=("architectures", "model_type"), **config)
    started = start(folder, projection=16, tokenization=LOWER, seed=2)
    assert_same_vectors(started, ance, records)
    assert_same_vectors(load_encoder(saved(started)), ance, records)


@pytest.mark.parametrize("architecture", ["RobertaDot", "RobertaDot_InBatch", "RobertaDot_Rand"])
def test_star_and_adore_have_a_size_of_their_own(ance, release, start, records, architecture):
    folder = release(ance_weights(ance), architectures=[architecture], output_embedding_size=16)
    assert_same_vectors(start(folder, tokenization=LOWER), ance, records)
    message = "vectors of 16 numbers, but encoder.projection is 768; set it to 16"
    with pytest.raises(ValueError, match=message):
        start(folder, projection=768)


def test_dance_is_ances_weights_and_other_vectors(ance, release, start, records, caplog):
    """As thunlp/DANCE computes `query_emb` and `body_emb`."""
    document = {"length_tokens": 48, "template": "{url}<sep>{title}<sep>{text}"}
    settings = {"tokenization": {**LOWER, **LIMIT, "prefix_space": False, "document": document}, **LIKE_DANCE}
    started = start(release(ance_weights(ance), "DANCE", architectures=[FIRSTP]), projection=16, **settings)
    assert caplog.messages == []
    assert (started.config.layer_norm, started.config.normalize) == ("query", True)
    whole, norm = ance.towers.queries.layers, Normalize()
    towers = TwoTower(Tower([*whole, norm]), Tower([*whole[:3], norm]))
    assert_same_vectors(started, Encoder(started.config, towers, started.tokenizer), records)


FORMS = {"ANCE": (FIRSTP, ""), "castorini": ("AnceEncoder", "ance_encoder."), "DANCE": (FIRSTP, "")}
FORMS |= {"maxp": (MULTI_CHUNK, ""), "STAR": ("RobertaDot", "")}


@pytest.mark.parametrize("missing", HEAD)
@pytest.mark.parametrize("called", FORMS)
def test_a_weight_of_the_head_that_is_missing_is_named(ance, release, start, called, missing):
    """Of DANCE's LayerNorm, too, of which only queries have need."""
    architecture, prefix = FORMS[called]
    weights = {name: value for name, value in ance_weights(ance, prefix).items() if name != prefix + missing}
    folder = release(weights, called, architectures=[architecture], output_embedding_size=16)
    message = f"not a complete ANCE checkpoint: no {missing} of the expected shape.*download the checkpoint"
    with pytest.raises(RuntimeError, match=message):
        start(folder, projection=16)


@pytest.mark.parametrize("name", ["whitening.weight", "roberta.encoder.layer.2.output.dense.bias"])
def test_a_weight_that_vectors_may_pass_through_is_refused(ance, release, start, name):
    folder = release({**ance_weights(ance), name: torch.zeros(16)}, architectures=[FIRSTP])
    with pytest.raises(RuntimeError, match=f"contains 1 weights that this encoder lacks, first {name}"):
        start(folder, projection=16)


LIKE_ANCE = {"lowercase": True, "prefix_space": False, "query": {"length_tokens": 64}}
LIKE_STAR = {**LIKE_ANCE, "prefix_space": True}
LITERAL = {"template": "{url}<sep>{title}<sep>{text}"}
LIMIT = {"max_characters": 10_000}
IN_FULL = {**LIKE_ANCE, **LIMIT, "document": LITERAL}
NO_SEP = re.escape("document.template is '{title} {text}', and") + ".* with '{url}<sep>{title}<sep>{text}'"
NO_PASSAGES = ["passages is 1, .* with 4", "special_tokens is 'per_passage', .* with 'per_document'"]
NOT_UNIT = ["encoder.normalize is False, .* trained with True", "encoder.layer_norm is True, .* with 'query'"]


@pytest.mark.parametrize(
    ("called", "architecture", "settings", "said"),
    [
        ("ance-msmarco-passage", "AnceEncoder", {"prefix_space": False}, ["lowercase is False, .* True"]),
        ("star", "RobertaDot", {**LIKE_STAR, "query": {"length_tokens": 65}}, ["length_tokens is 65, .* 64"]),
        ("Document ANCE(FirstP) Checkpoint", FIRSTP, LIKE_ANCE, [NO_SEP, "max_characters is None, .* 10000"]),
        ("passage/trained_models/adore-star", "RobertaDot_InBatch", LIKE_STAR, []),
        ("any", MULTI_CHUNK, IN_FULL, NO_PASSAGES),
        ("ance-msmarco-doc-maxp", "AnceEncoder", LIKE_ANCE | LIMIT, [NO_SEP, *NO_PASSAGES]),
        ("DANCE/checkpoint-80000", FIRSTP, IN_FULL, []),
        ("any", FIRSTP, {**LIKE_ANCE, "pooling": "mean"}, ["encoder.pooling is 'mean', .* with 'cls'"]),
    ],
)
def test_changed_settings_are_told(ance, release, start, caplog, called, architecture, settings, said):
    folder = release(ance_weights(ance), called, architectures=[architecture], output_embedding_size=16)
    tokenization = {key: value for key, value in settings.items() if key != "pooling"}
    others = {key: settings[key] for key in settings.keys() & {"pooling"}}
    start(folder, projection=16, tokenization=tokenization, **others)
    assert_told(caplog, said)


def assert_told(caplog, said: list[str]):
    assert len(caplog.messages) == len(said), caplog.messages
    for words, message in zip(said, caplog.messages, strict=True):
        assert re.search(words, message)


@pytest.mark.parametrize(
    ("arguments", "vectors", "said"),
    [
        (argparse.Namespace(**UNIT, learning_rate=5e-6), {"normalize": False, "layer_norm": True}, NOT_UNIT),
        (argparse.Namespace(**UNIT), LIKE_DANCE, []),
        (SimpleNamespace(**UNIT, of=logging.getLogger), {}, []),
    ],
)
def test_dance_is_known_by_its_training_arguments(ance, release, start, caplog, arguments, vectors, said):
    """What else lies in such a file is not run."""
    folder = release(ance_weights(ance), architectures=[FIRSTP])
    torch.save(arguments, folder / "training_args.bin")
    start(folder, projection=16, tokenization=IN_FULL, **vectors)
    assert_told(caplog, said)


def test_our_own_checkpoints_are_no_releases(ance, saved, start, caplog):
    start(saved(ance), projection=16, tokenization=LOWER)
    assert caplog.messages == []
