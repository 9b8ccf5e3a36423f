"""Exact search against numpy; whole numbers make scores exact, so that ties are ties on every backend."""

import numpy as np
import pytest
import torch
from helpers.device_counts import META, DeviceCounts
from helpers.stable_sort import best_by_stable_sort

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import search
from pyserini_ance.vectors.search import resolve_backend, search_arrays, searcher

CASES = {  # queries, documents, k
    "few": (3, 50, 10),
    "many queries": (40, 50, 10),
    "large k": (30, 500, 120),
    "k larger than faiss's heap": (25, 700, 300),
    "k beyond the documents": (3, 20, 50),
    "k of all documents": (3, 20, 20),
    "one best": (40, 300, 1),
    "one document": (4, 1, 1),
    "one document, k beyond": (1, 1, 5),
    "no queries": (0, 7, 3),
    "exactly a block": (5, 7, 3),
    "one more than a block": (6, 8, 3),
}
QUERIES, DOCUMENTS = np.ones((2, 4), np.float32), np.eye(6, 4, dtype=np.float32)


def vectors(queries: int, documents: int) -> tuple[np.ndarray, np.ndarray]:
    """Few distinct values, so that most scores tie; a tenth of the documents are copies, some are zero."""
    rng = np.random.default_rng(documents)
    made = rng.integers(-1, 2, (documents, 4)).astype(np.float32)
    copies = rng.integers(0, documents, (2, documents // 10))
    made[copies[0]] = made[copies[1]]
    return rng.integers(-2, 3, (queries, 4)).astype(np.float32), made


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(search, "QUERIES_PER_BLOCK", 5)
    monkeypatch.setattr(search, "DOCUMENTS_PER_BLOCK", 7)
    monkeypatch.setattr(search, "FAISS_DOCUMENTS_PER_BLOCK", 7)
    monkeypatch.setattr(search, "SCORES_IN_CACHE", 5 * 7)


@pytest.mark.parametrize("row", [0, 4, 11])
def test_faiss_refuses_documents_that_have_no_score(row, small_blocks):
    """Their hits would be rows of the block before."""
    documents = np.eye(12, dtype=np.float32)
    documents[row, 0] = np.nan
    with pytest.raises(ValueError, match="vectors are not finite numbers"):
        search_arrays(searcher(documents, "faiss", "cpu", World()), np.ones((1, 12), np.float32), 12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["torch", "faiss"])
def test_equals_numpy(case, backend, small_blocks):
    queries, documents, k = CASES[case]
    queries, documents = vectors(queries, documents)
    scores, rows = search_arrays(searcher(documents, backend, "cpu", World()), queries, k)
    assert (scores.dtype, rows.dtype) == (np.float32, np.int32)
    expected_scores, expected_rows = best_by_stable_sort(queries @ documents.T, k)
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(rows, expected_rows)


@pytest.mark.parametrize("backend", ["auto", "torch", "torch, without a copy"])
def test_real_vectors_from_a_memory_map(tmp_path, small_blocks, backend, monkeypatch):
    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(count, 16)).astype(np.float32) for count in (12, 100))
    documents.tofile(tmp_path / "documents")
    mapped = np.memmap(tmp_path / "documents", np.float32, "r", shape=documents.shape)
    expected = best_by_stable_sort(queries.astype(np.float64) @ documents.T.astype(np.float64), 10)
    if "copy" in backend:
        monkeypatch.setattr(np, "array", None)  # it copies blocks of an array
        mapped = search.as_tensor(mapped)
    find = search.searcher(mapped, backend.partition(",")[0], "cpu", World())
    scores, rows = search.search_arrays(find, queries, 10)
    monkeypatch.undo()
    np.testing.assert_allclose(scores, expected[0], atol=1e-5)
    np.testing.assert_array_equal(rows, expected[1])


@pytest.mark.parametrize("backend", [3, 16])
def test_candidates_by_the_first_numbers_are_ranked_by_all(backend):
    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(count, 16)).astype(np.float32) for count in (12, 400))
    scores = queries.astype(np.float64) @ documents.T.astype(np.float64)
    first = queries[:, :backend].astype(np.float64) @ documents[:, :backend].T.astype(np.float64)
    np.put_along_axis(scores, np.argsort(-first, axis=1)[:, 40:], -np.inf, 1)
    expected_scores, expected_rows = best_by_stable_sort(scores, 10)
    for given in (documents, torch.from_numpy(documents)):
        found = search.search_arrays(search.searcher(given, backend, "cpu", World()), queries, 10)
        np.testing.assert_allclose(found[0], expected_scores, atol=1e-5)
        np.testing.assert_array_equal(found[1], expected_rows)


@pytest.mark.parametrize("are_resident", [True, False])
@pytest.mark.parametrize("asked_on", ["cpu", "meta"])
def test_a_search_on_a_gpu_waits_for_nothing(are_resident, asked_on, monkeypatch):
    """Queries go over once; documents that are not there already, block by block."""
    monkeypatch.setattr(search, "DOCUMENTS_PER_BLOCK", 100)
    documents = np.ones((300, 8), np.float32)
    on_device = torch.empty(300, 8, device=META) if are_resident else documents
    find = search.searcher(on_device, "torch", "meta", World())
    queries = torch.ones(2 * search.QUERIES_PER_BLOCK + 1, 8, device=asked_on)
    with DeviceCounts() as counts:
        scores, rows = find(queries, 20)
    assert (scores.shape, scores.dtype, scores.device) == ((len(queries), 20), torch.float32, META)
    assert (rows.shape, rows.dtype, rows.device) == ((len(queries), 20), torch.int32, META)
    copies = (asked_on == "cpu") + (0 if are_resident else 4)  # blocks of 96 documents, six groups
    assert counts.waits.total() == 0, counts.places
    assert counts.copies.total() == counts.copies["to device"] == copies


def test_the_backend_is_faiss_on_a_cpu_where_it_is_installed(monkeypatch):
    assert [resolve_backend("auto", device) for device in ("cpu", "cuda:1")] == ["faiss", "torch"]
    assert [resolve_backend(setting, "cpu") for setting in ("torch", "faiss")] == ["torch", "faiss"]
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda _: None)
    assert resolve_backend("auto", "cpu") == "torch"


def with_value(vectors: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    changed = vectors.copy()
    changed[row, column] = value
    return changed


@pytest.mark.parametrize(
    ("queries", "documents", "k", "message"),
    [
        (with_value(QUERIES, 1, 2, np.nan), DOCUMENTS, 3, "query_vectors: row 1 is nan in dimension 2"),
        (QUERIES, with_value(DOCUMENTS, 5, 0, -np.inf), 3, "document_vectors: row 5 is -inf in dimension 0"),
        (QUERIES, DOCUMENTS, 0, "k is 0; expected a whole number from 1"),
        (QUERIES, DOCUMENTS, 2.5, "k is 2.5; expected"),
        (QUERIES[:, :3], DOCUMENTS, 3, "query_vectors have 3 dimensions, document_vectors 4; encode both"),
        (QUERIES[0], DOCUMENTS, 3, r"query_vectors has the shape \(4,\); expected two dimensions"),
    ],
)
def test_what_cannot_be_searched_is_named(queries, documents, k, message):
    with pytest.raises(ValueError, match=message):
        search.search(queries, documents, k)


def test_large_finite_values_and_other_arrays_are_searched():
    """Sums over dimensions may overflow; the values themselves are finite."""
    large = np.full((3, 4), 2e38, np.float32)
    expected = [[0, 1, 2]] * 2
    assert search.search(QUERIES * 0, large, 3)[1].tolist() == expected
    for zeros in (torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.bfloat16, requires_grad=True)):
        assert search.search(zeros, large[:, ::-1], 5)[1].tolist() == expected
    scores, rows = search.search(np.empty((0, 4)), DOCUMENTS.astype(np.float64), 3)
    assert scores.shape == rows.shape == (0, 3)
