"""Search over shards in real processes, against numpy over all documents. Whole numbers make scores exact."""

from functools import partial

import numpy as np
import pytest
from helpers.stable_sort import best_by_stable_sort

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import search, sharded_search
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.sharded_search import search_shards


def drawn(seed: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Queries, documents, bounds of the shards, and k.

    Few distinct values, so that most scores tie, also at k.

    Shards may be empty or smaller than k, and k larger than all documents.
    """
    rng = np.random.default_rng(seed)
    count, dimension = int(rng.integers(1, 60)), int(rng.integers(1, 5))
    queries = rng.integers(-2, 3, (int(rng.integers(0, 14)), dimension)).astype(np.float32)
    documents = rng.integers(-1, 2, (count, dimension)).astype(np.float32)
    return queries, documents, np.sort(rng.integers(0, count + 1, size - 1)), int(rng.integers(1, 70))


def search_together(world: World, queries, documents, cuts, k, backend="torch") -> tuple:
    shards = ShardedVectors(np.split(documents, cuts), world.rank)
    own = search.searcher(shards.own, backend, "cpu", world)
    return search.search_arrays(partial(search_shards, own, shards, world), queries, k)


def small_blocks() -> None:
    search.QUERIES_PER_BLOCK = sharded_search.QUERIES_PER_BLOCK = 5
    search.DOCUMENTS_PER_BLOCK = search.FAISS_DOCUMENTS_PER_BLOCK = 7
    search.SCORES_IN_CACHE = 5 * 7


def search_all(world: World, seeds: range, backend: str) -> list[tuple[np.ndarray, np.ndarray]]:
    small_blocks()
    return [search_together(world, *drawn(seed, world.size), backend) for seed in seeds]


@pytest.mark.parametrize("backend", ["torch", "faiss"])
@pytest.mark.parametrize("size", [2, 3])
def test_equals_numpy_on_every_process(run_processes, size, backend):
    for seed, results in enumerate(zip(*run_processes(size, search_all, range(80), backend), strict=True)):
        queries, documents, _, k = drawn(seed, size)
        expected_scores, expected_rows = best_by_stable_sort(queries @ documents.T, k)
        for scores, rows in results:
            assert (scores.dtype, rows.dtype) == (np.float32, np.int32)
            np.testing.assert_array_equal(scores, expected_scores, err_msg=f"seed {seed}")
            np.testing.assert_array_equal(rows, expected_rows, err_msg=f"seed {seed}")


def shares_of(seed: int, queries: int, size: int) -> list[int]:
    """How many queries each process has; some have none."""
    cuts = np.sort(np.random.default_rng(1000 + seed).integers(0, queries + 1, size - 1))
    return np.diff([0, *cuts, queries]).tolist()


def search_own(world: World, seeds: range) -> list[tuple[np.ndarray, np.ndarray]]:
    small_blocks()
    found = []
    for seed in seeds:
        queries, documents, cuts, k = drawn(seed, world.size)
        shards = ShardedVectors(np.split(documents, cuts), world.rank)
        shares = shares_of(seed, len(queries), world.size)
        own = search.searcher(shards.own, "torch", "cpu", world)
        find = partial(search_shards, own, shards, world, shares=shares, takes_long=True)
        found.append(search.search_arrays(find, queries, k))
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_process_gets_the_results_of_its_own_queries(run_processes, size):
    for seed, results in enumerate(zip(*run_processes(size, search_own, range(80)), strict=True)):
        queries, documents, _, k = drawn(seed, size)
        assert [len(scores) for scores, _ in results] == shares_of(seed, len(queries), size)
        best = best_by_stable_sort(queries @ documents.T, k)
        for found, expected in zip(zip(*results, strict=True), best, strict=True):
            np.testing.assert_array_equal(np.concatenate(found), expected, err_msg=f"seed {seed}")


def minus_infinity(world: World):
    """The first shard is too small and is filled up; a real -inf of the last one comes before the filling."""
    rows = np.array([[1], [-np.inf], [2], [-np.inf]], np.float32)
    return search_together(world, np.ones((1, 1), np.float32), rows, [1], 4)


def test_the_worst_score_is_a_score(run_processes):
    for scores, rows in run_processes(2, minus_infinity):
        assert rows.tolist() == [[2, 0, 1, 3]] and scores.tolist() == [[2, 1, -np.inf, -np.inf]]
