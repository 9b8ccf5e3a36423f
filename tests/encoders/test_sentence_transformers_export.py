"""An exported encoder in sentence-transformers: the same vectors."""

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import assert_equal_vectors, with_moved_documents

from pyserini_ance.encoders.exports import write_sentence_transformers
from pyserini_ance.encoders.load_save import load_encoder

LENGTHS = {"query": {"length_tokens": 24, "template": "query: {text}"}, "document": {"length_tokens": 48}}
DOCUMENTS, QUERIES = ["the quick brown fox " * 30, "a lazy dog"], ["which fox", "the dog"]


@pytest.fixture
def exported(start, tiny_bert, saved):
    """Save and export an encoder; the document tower of a pair has other weights than the query tower."""

    def make(**settings):
        folder = saved(with_moved_documents(start("transformer", tiny_bert, **settings)))
        assert write_sentence_transformers(folder) is None
        return folder

    return make


def assert_the_same(model, encoder, queries=QUERIES, documents=DOCUMENTS):
    np.testing.assert_allclose(model.encode_query(queries), encoder.encode(queries, "query"), atol=1e-5)
    np.testing.assert_allclose(
        model.encode_document(documents), encoder.encode(documents, "document"), atol=1e-5
    )


@pytest.mark.parametrize(
    ("pooling", "normalize", "projection"), [("mean", True, None), ("cls", False, None), ("mean", True, 8)]
)
def test_sentence_transformers_computes_the_same_vectors(exported, pooling, normalize, projection):
    library = pytest.importorskip("sentence_transformers")
    folder = exported(pooling=pooling, normalize=normalize, projection=projection, tokenization=LENGTHS)
    model = library.SentenceTransformer(str(folder), device="cpu")
    assert_the_same(model, load_encoder(folder))
    assert model.get_embedding_dimension() == (projection or 32)


@pytest.mark.parametrize(
    ("pooling", "normalize", "projection"), [("mean", True, None), ("cls", False, None), ("cls", "query", 8)]
)
def test_two_towers_are_the_routes_of_a_router(
    exported, pooling, normalize, projection, tiny_bert, start, tmp_path
):
    """Each with its length, so that long queries have the same vectors, too."""
    library = pytest.importorskip("sentence_transformers")
    lengths = {**LENGTHS, "document": {"length_tokens": 48, "template": "passage: {title} {text}"}}
    settings = {"pooling": pooling, "normalize": normalize, "projection": projection, "tied": False}
    folder = exported(**settings, tokenization=lengths)
    encoder, model = load_encoder(folder), library.SentenceTransformer(str(folder), device="cpu")
    assert_the_same(model, encoder, queries=[*QUERIES, *DOCUMENTS])
    assert not np.allclose(model.encode_query("the dog"), model.encode_document("the dog"), atol=0.01)
    assert (model.similarity_fn_name, model.get_embedding_dimension()) == ("dot", projection or 32)
    # A tower alone is a model, and so is what the library writes again.
    tower = library.SentenceTransformer(str(folder / "queries"), device="cpu")
    np.testing.assert_allclose(tower.encode_query(QUERIES), model.encode_query(QUERIES), atol=1e-5)
    model.save(str(tmp_path / "again"), create_model_card=False)
    assert_the_same(library.SentenceTransformer(str(tmp_path / "again"), device="cpu"), encoder)
    # A run may start from the exported folder.
    started = start("transformer", folder, **settings, tokenization=lengths, seed=2)
    assert_equal_vectors(started, encoder, DOCUMENTS)


BY_SIDE = "query"
PAIR = {"length_tokens": 48, "template": "{title} [SEP] {text}"}
PASSAGES = {"length_tokens": 48, "passages": 2}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"normalize": BY_SIDE}, "normalize, which differs by side, of one tower"),
        ({"layer_norm": BY_SIDE, "head": "new"}, "layer_norm, which differs by side"),
        ({"tokenization": {"lowercase": True, **LENGTHS}}, "tokenization.lowercase"),
        ({"tied": False, "tokenization": {**LENGTHS, "document": PAIR}}, "tokenization.document.template="),
        ({"tokenization": {**LENGTHS, "document": PASSAGES}}, "tokenization.document.passages=2"),
    ],
)
def test_what_sentence_transformers_cannot_do_is_left_as_it_is(
    start, tiny_bert, tiny_roberta, saved, settings, reason
):
    kind, model = ("roberta_ance", tiny_roberta) if "head" in settings else ("transformer", tiny_bert)
    folder = saved(start(kind, model, **settings))
    before = sorted(folder.rglob("*"))
    assert write_sentence_transformers(folder).startswith(f"encoder.{reason}")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_the_head_of_ance_is_a_dense_and_a_layer_norm(start, tiny_roberta, saved, normalize, tied):
    library = pytest.importorskip("sentence_transformers")
    sides = "query"
    settings = {"normalize": normalize, "tied": tied, "layer_norm": True if tied else sides}
    encoder = start("roberta_ance", tiny_roberta, head="new", dimension=16, **settings)
    with torch.no_grad():
        for side in ("query", "document"):
            norm = encoder.towers.tower(side).model.norm
            norm.weight.normal_(), norm.bias.normal_()
    folder = saved(encoder)
    assert write_sentence_transformers(folder) is None
    assert_the_same(library.SentenceTransformer(str(folder), device="cpu"), encoder)
