import numpy as np
import pytest

from pyserini_ance.encoders.checkpoint import load_encoder, save_encoder, start_encoder
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.models import Encoding

STAGES = {"a": {"steps": 1, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "terms": {"query": {"pool": "step"}}}}


@pytest.fixture
def snapshot(small_recipe, tmp_path):
    recipe = small_recipe(STAGES)
    (tmp_path / "model").mkdir()
    save_encoder(start_encoder(recipe.encoder, 0), tmp_path / "model")
    data = tokenise(recipe, read_collection(recipe))
    return Snapshot(tmp_path / "model", "hash", data, Encoding(precision="fp32", tokens_per_batch=64), tmp_path / "scratch", "cpu")


def test_rankings_are_those_of_the_checkpoint(snapshot):
    encoder, collection = load_encoder(snapshot.model), snapshot.collection
    documents = encoder.encode(collection.documents.take(range(30)), "document")
    queries = encoder.encode(snapshot.split.queries.take(range(15)), "query")
    scores, rows = snapshot.search(7)
    assert np.allclose(snapshot.document_vectors, documents, atol=1e-5) and np.allclose(snapshot.query_vectors, queries, atol=1e-5)
    expected = queries @ documents.T
    assert np.allclose(scores, -np.sort(-expected, axis=1)[:, :7], atol=1e-4)
    assert np.allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-4)


def test_everything_is_made_once_on_first_use(snapshot, monkeypatch):
    assert snapshot.seconds == {} and not snapshot.scratch.exists()
    snapshot.search(5)
    assert {"load", "encode_documents", "encode_queries", "search"} == set(snapshot.seconds)
    monkeypatch.setattr(type(snapshot.encoder), "encode_rows", None)  # nothing is encoded again
    assert snapshot.search(3)[1].tolist() == snapshot.search(5)[1][:, :3].tolist()
    assert snapshot.search(1000)[1].shape == (15, 30)


def test_vectors_of_some_rows_are_those_of_all(snapshot):
    rows = np.array([4, 29, 0])
    assert np.allclose(snapshot.encode_documents(rows), snapshot.document_vectors[rows], atol=1e-5)
    assert np.allclose(snapshot.encode_queries("train", rows[[0, 2]]), snapshot.query_vectors[[4, 0]], atol=1e-5)
