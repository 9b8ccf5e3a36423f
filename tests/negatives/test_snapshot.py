from pathlib import Path

import numpy as np
import pytest
import transformers.models.bert.modeling_bert  # noqa: F401  here, before processes are forked: it takes seconds

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import load_encoder, save_encoder, start_encoder
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.models import Encoding, Recipe
from pyserini_ance.vectors import precision

STAGES = {"a": {"steps": 1, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "terms": {"query": {"pool": "step"}}}}


@pytest.fixture
def recipe(small_recipe, tmp_path):
    recipe = small_recipe(STAGES)
    (tmp_path / "model").mkdir()
    save_encoder(start_encoder(recipe.encoder, 0), tmp_path / "model")
    return recipe


@pytest.fixture
def snapshot(recipe, tmp_path):
    return view(World(), recipe, tmp_path)


def view(world: World, recipe: Recipe, folder: Path, **encoding) -> Snapshot:
    data = tokenise(recipe, read_collection(recipe))
    settings = Encoding(**{"precision": "fp32", "tokens_per_batch": 64, **encoding})
    return Snapshot(folder / "model", "hash", data, settings, folder / "scratch", "cpu", world)


def search(snapshot: Snapshot, k: int) -> tuple[np.ndarray, np.ndarray]:
    return snapshot.search("query", np.arange(15), "document", k)


def test_rankings_are_those_of_the_checkpoint(snapshot):
    encoder, collection = load_encoder(snapshot.model), snapshot.collection
    documents = encoder.encode(collection.documents.take(range(30)), "document")
    queries = encoder.encode(snapshot.split.queries.take(range(15)), "query")
    scores, rows = search(snapshot, 7)
    assert np.allclose(snapshot.document_vectors[:], documents, atol=1e-5) and np.allclose(snapshot.query_vectors, queries, atol=1e-5)
    expected = queries @ documents.T
    assert np.allclose(scores, -np.sort(-expected, axis=1)[:, :7], atol=1e-4)
    assert np.allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-4)


def test_everything_is_made_once_on_first_use(snapshot, monkeypatch):
    assert snapshot.seconds == {} and not snapshot.scratch.exists()
    search(snapshot, 5)
    assert {"load", "encode_documents", "encode_queries", "build", "search"} == set(snapshot.seconds)
    monkeypatch.setattr(type(snapshot.encoder), "encode_rows", None)  # nothing is encoded again
    assert search(snapshot, 3)[1].tolist() == search(snapshot, 5)[1][:, :3].tolist()
    assert search(snapshot, 1000)[1].shape == (15, 30)


def test_vectors_of_some_rows_are_those_of_all(snapshot):
    rows = np.array([4, 29, 0])
    assert np.allclose(snapshot.encode_documents(rows)[0], snapshot.document_vectors[rows], atol=1e-5)
    assert np.allclose(snapshot.encode_queries("train", rows[[0, 2]]), snapshot.query_vectors[[4, 0]], atol=1e-5)


def test_a_document_scores_what_its_best_passage_does(small_recipe, tmp_path):
    recipe = small_recipe(STAGES, **{"encoder": in_passages(small_recipe(STAGES))})
    (tmp_path / "model").mkdir()
    save_encoder(start_encoder(recipe.encoder, 0), tmp_path / "model")
    snapshot = view(World(), recipe, tmp_path)
    encoder, tokens = load_encoder(snapshot.model), tokenise(small_recipe(STAGES), snapshot.collection).documents
    pieces = [list(zip(range(0, 24, 8), np.split(ids, range(8, len(ids), 8)), strict=False)) for ids in map(tokens.ids.__getitem__, slices(tokens))]
    assert {len(document) for document in pieces} == {2, 3}
    store = TokenStore.of_lists([ids.tolist() for document in pieces for _, ids in document], tokens.specials)
    vectors = np.empty((len(store), encoder.dimension), np.float32)
    for rows, block in encoder.encode_rows(store, np.arange(len(store)), "document", "fp32", 64):
        vectors[rows] = block
    of = np.repeat(np.arange(30), [len(document) for document in pieces])
    each = snapshot.query_vectors @ vectors.T
    expected = np.stack([each[:, of == document].max(1) for document in range(30)], axis=1)
    for k in (7, 30):
        scores, rows = search(snapshot, k)
        assert np.allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=1e-4)
        assert np.allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-4)
    some, passages = snapshot.encode_documents(np.array([4, 29, 0]))
    assert np.allclose(snapshot.rank(snapshot.query_vectors, some, 3, passages)[0].max(1), expected[:, [4, 29, 0]].max(1), atol=1e-4)


def in_passages(recipe: Recipe) -> dict:
    """Its encoder, with documents in up to three passages of 8 tokens."""
    encoder = recipe.encoder.model_dump(mode="json")
    encoder["tokenization"]["document"].update(length_tokens=10, passages=3)
    return encoder


def slices(tokens: TokenStore) -> list[slice]:
    return [slice(start, stop) for start, stop in zip(tokens.offsets, tokens.offsets[1:], strict=False)]


def everything(snapshot: Snapshot) -> dict[str, np.ndarray]:
    scores, rows = search(snapshot, 7)
    some = np.array([4, 29, 0])
    return {
        "rows": rows,
        "scores": scores,
        "queries": snapshot.encode_queries("dev", some[[2, 0]]),
        "documents": np.array(snapshot.document_vectors[some]),
    }


def seen(world: World, recipe: Recipe, folder: Path, backend: str) -> tuple[dict, set[str], np.ndarray]:
    """Everything of a snapshot, its seconds, and a sample that is encoded without the other documents."""
    snapshot = view(world, recipe, folder, search=backend)
    sample = snapshot.encode_documents(np.array([4, 29, 0]))[0]
    assert "document_vectors" not in vars(snapshot)
    return everything(snapshot), set(snapshot.seconds), sample


@pytest.mark.parametrize(("size", "backend"), [(2, "torch"), (3, "faiss")])
def test_processes_share_the_work_and_have_equal_results(run_processes, recipe, snapshot, tmp_path, size, backend):
    """Rows equal; scores to rounding, because a batch of other texts is padded otherwise."""
    expected = everything(snapshot)
    for found, seconds, sample in run_processes(size, seen, recipe, tmp_path, backend):
        np.testing.assert_array_equal(found["rows"], expected["rows"])
        for name in ("scores", "queries", "documents"):
            np.testing.assert_allclose(found[name], expected[name], atol=1e-4)
        np.testing.assert_allclose(sample, expected["documents"], atol=1e-5)
        assert seconds == {"load", "encode_documents", "encode_queries", "build", "search"}


def precision_of(world: World, recipe: Recipe, folder: Path) -> str:
    precision.cpu_has_fast_bf16 = lambda: world.is_main
    return view(world, recipe, folder, precision="auto").precision


def test_processes_agree_on_the_precision(run_processes, recipe, tmp_path):
    assert run_processes(2, precision_of, recipe, tmp_path) == ["bf16", "bf16"]


def test_documents_are_not_encoded_again_when_only_the_query_tower_differs(snapshot, tmp_path):
    vectors, asked = np.array(snapshot.document_vectors[:]), []
    settings = (snapshot.data, snapshot.encoding, snapshot.scratch, "cpu", World())
    again = Snapshot(snapshot.model, "another hash", *settings, document_weights="hash")
    again.encoder.encode_rows = lambda tokens, rows, *_: asked.extend(rows) or ()
    assert np.array_equal(again.document_vectors[:], vectors) and asked == []
