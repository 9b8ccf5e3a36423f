"""A saved encoder in sentence-transformers: the same vectors."""

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import assert_equal_vectors, with_moved_documents
from sentence_transformers import SentenceTransformer

from pyserini_ance.encoders.config import config_of
from pyserini_ance.encoders.load_save import load_encoder

LENGTHS = {"query": {"length_tokens": 24, "template": "query: {text}"}, "document": {"length_tokens": 48}}
DOCUMENTS, QUERIES = ["the quick brown fox " * 30, "a lazy dog"], ["which fox", "the dog"]
PAIR = {"length_tokens": 48, "template": "{title} [SEP] {text}"}
TWO_TOWERS = [("mean", True, None), ("cls", False, None), ("cls", "query", 8)]
SAID = [(PAIR, "template: '{title} [SEP] {text}'"), ({"passages": 2}, "passages: 2"), ({}, None)]


@pytest.fixture
def exported(start, tiny_bert, saved):
    """Save an encoder; the document tower of a pair has other weights than the query tower."""
    return lambda **settings: saved(with_moved_documents(start(tiny_bert, **settings)))


def assert_the_same(model, encoder, queries=QUERIES, documents=DOCUMENTS):
    np.testing.assert_allclose(model.encode_query(queries), encoder.encode(queries, "query"), atol=1e-5)
    expected = encoder.encode(documents, "document")
    np.testing.assert_allclose(model.encode_document(documents), expected, atol=1e-5)


@pytest.mark.parametrize("pooling, normalize, projection", TWO_TOWERS)
def test_two_towers_are_routes(exported, pooling, normalize, projection, tiny_bert, start, tmp_path):
    """Each with its length, so that long queries have the same vectors, too."""
    lengths = {**LENGTHS, "document": {"length_tokens": 48, "template": "passage: {title} {text}"}}
    settings = {"pooling": pooling, "normalize": normalize, "projection": projection, "tied": False}
    folder = exported(**settings, tokenization=lengths)
    encoder, model = load_encoder(folder), SentenceTransformer(str(folder), device="cpu")
    assert_the_same(model, encoder, queries=[*QUERIES, *DOCUMENTS])
    assert not np.allclose(model.encode_query("the dog"), model.encode_document("the dog"), atol=0.01)
    assert (model.similarity_fn_name, model.get_embedding_dimension()) == ("dot", projection or 32)
    # A tower alone is a model, and so is what the library writes again.
    tower = SentenceTransformer(str(folder / "queries"), device="cpu")
    np.testing.assert_allclose(tower.encode_query(QUERIES), model.encode_query(QUERIES), atol=1e-5)
    model.save(str(tmp_path / "again"), create_model_card=False)
    assert_the_same(SentenceTransformer(str(tmp_path / "again"), device="cpu"), encoder)
    # A run may start from the exported folder.
    assert_equal_vectors(start(folder, **settings, tokenization=lengths, seed=2), encoder, DOCUMENTS)


SIDED = [
    {"normalize": "query"},
    {"normalize": "document", "projection": 8, "layer_norm": "query"},
    {"normalize": True, "projection": 8, "layer_norm": "document"},
]


@pytest.mark.parametrize("settings", SIDED)
def test_one_tower_may_end_otherwise_on_each_side(exported, settings):
    folder = exported(**settings, tokenization=LENGTHS)
    encoder = load_encoder(folder)
    assert encoder.towers.tied
    assert config_of(folder).modules("query") == {"pooling": "cls", "layer_norm": False, **settings}
    assert_the_same(SentenceTransformer(str(folder), device="cpu"), encoder)
    vectors = encoder.encode(QUERIES, "query"), encoder.encode(QUERIES, "document")
    assert not np.allclose(*vectors, atol=0.01)


def test_texts_are_lowered_first(start, tiny_roberta, saved):
    """By a tokenizer that keeps capitals."""
    encoder = start(tiny_roberta, pooling="mean", tokenization={"lowercase": True, **LENGTHS})
    assert_the_same(SentenceTransformer(str(saved(encoder)), device="cpu"), encoder, ["The DOG", "the dog"])


@pytest.mark.parametrize("document, said", SAID)
def test_what_sentence_transformers_does_not_read_is_told(config, document, said):
    unread = config("model", tokenization={"document": document}).unread_by_sentence_transformers
    assert unread == (said and f"document.{said}")


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_the_head_of_ance_is_a_dense_and_a_layer_norm(start, tiny_roberta, saved, normalize, tied):
    settings = {"normalize": normalize, "tied": tied, "layer_norm": True if tied else "query"}
    encoder = start(tiny_roberta, projection=16, **settings)
    with torch.no_grad():
        norm = encoder.towers.queries.layers[3].norm
        norm.weight.normal_(), norm.bias.normal_()
    assert_the_same(SentenceTransformer(str(saved(encoder)), device="cpu"), encoder)
