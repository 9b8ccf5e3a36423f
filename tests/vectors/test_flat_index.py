"""FlatIndex: the same results as one search, without copying the documents."""

import numpy as np
import pytest
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import search
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.search import exact_search, resident
from pyserini_ance.vectors.sharded_search import FlatIndex


def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers: scores are exact, and many tie."""
    rng = np.random.default_rng(0)
    return rng.integers(-2, 3, (9, 4)).astype(np.float32), rng.integers(-1, 2, (50, 4)).astype(np.float32)


def search_together(world: World, backend: str, cuts: list[int], ks: list[int]) -> list:
    queries, documents = drawn()
    shards = ShardedVectors(np.split(documents, cuts), world.rank)
    own = resident(shards.own, "cpu") if backend == "torch" else shards.own
    index = FlatIndex(shards, search.searcher(own, backend, "cpu", world), world)
    return [search.search_arrays(index, queries, k) for k in ks]


@pytest.mark.parametrize("backend", ["torch", "faiss"])
def test_processes_find_together_what_one_search_finds(run_processes, backend):
    """The search is repeated, with an empty shard, and with k larger than the number of documents."""
    queries, documents = drawn()
    for results in run_processes(3, search_together, backend, [20, 20], [7, 30, 99]):
        for k, (scores, rows) in zip([7, 30, 99], results, strict=True):
            expected_scores, expected_rows = exact_search(queries, documents, k)
            np.testing.assert_array_equal(rows, expected_rows)
            np.testing.assert_array_equal(scores, expected_scores)


def test_a_resident_memory_map_is_searched_without_a_copy(tmp_path, monkeypatch):
    queries, documents = drawn()
    documents.tofile(tmp_path / "documents")
    mapped = np.memmap(tmp_path / "documents", np.float32, "r", shape=documents.shape)
    tensor = resident(mapped, "cpu")
    assert tensor.data_ptr() == mapped.ctypes.data
    monkeypatch.setattr(np, "array", None)  # it copies blocks of an array
    find = search.searcher(tensor, "torch", "cpu", World(), documents_per_block=7)
    _, rows = find(torch.from_numpy(queries), 10)
    monkeypatch.undo()
    np.testing.assert_array_equal(rows, exact_search(queries, documents, 10)[1])


def test_few_queries_take_larger_blocks_of_whole_groups_where_all_documents_are_on_a_gpu():
    held, mapped = torch.empty(100, 4, device="meta"), np.empty((9, 4))
    for documents, queries, block, device, expected in (
        (held, 32, 1600, "meta", 1600 * search.QUERIES_PER_BLOCK // 32),
        (held, 500, 1600, "meta", 1632),
        (held, 5000, 1600, "meta", 1600),
        (mapped, 32, 1600, "meta", 1600),
        (mapped, 5000, 1000, "meta", 992),
        (mapped, 5000, 7, "meta", 16),
        (mapped, 5000, 1000, "cpu", 1000),
    ):
        assert search._documents_at_once(documents, queries, block, device) == expected
