"""An exported encoder in sentence-transformers: the same vectors."""

import json

import numpy as np
import pytest

from pyserini_ance.encoders.load_save import initial_encoder, load_encoder
from pyserini_ance.encoders.sentence_transformers_export import write_sentence_transformers

LENGTHS = {"query": {"length_tokens": 24, "template": "query: {text}"}, "document": {"length_tokens": 48}}


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_sentence_transformers_computes_the_same_vectors(family, tiny_bert, saved, pooling, normalize):
    models = pytest.importorskip("sentence_transformers")
    settings = {"pooling": pooling, "normalize": normalize, "tokenization": LENGTHS}
    folder = saved(initial_encoder(family("transformer", tiny_bert, **settings), seed=1))
    write_sentence_transformers(folder)
    encoder, model = load_encoder(folder), models.SentenceTransformer(str(folder), device="cpu")
    documents, queries = ["the quick brown fox " * 30, "a lazy dog"], ["which fox", "the dog"]
    for texts, side, encode in (
        (documents, "document", model.encode_document),
        (queries, "query", model.encode_query),
    ):
        np.testing.assert_allclose(encode(texts), encoder.encode(texts, side), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"projection": 8},
        {"normalize": {"query": True, "document": False}},
        {"tokenization": {"lowercase": True, **LENGTHS}},
        {"tokenization": {**LENGTHS, "document": {"length_tokens": 48, "template": "{title} [SEP] {text}"}}},
        {"tied": False},
    ],
)
def test_what_sentence_transformers_cannot_do_is_left_as_it_is(family, tiny_bert, saved, settings):
    folder = saved(initial_encoder(family("transformer", tiny_bert, **settings), seed=1))
    before = sorted(folder.rglob("*"))
    write_sentence_transformers(folder)
    assert sorted(folder.rglob("*")) == before


def test_the_files_name_the_layers(family, tiny_bert, saved):
    folder = saved(initial_encoder(family("transformer", tiny_bert, normalize=True), seed=1))
    write_sentence_transformers(folder)
    types = [module["type"] for module in json.loads((folder / "modules.json").read_text())]
    assert [name.rpartition(".")[2] for name in types] == ["Transformer", "Pooling", "Normalize"]
