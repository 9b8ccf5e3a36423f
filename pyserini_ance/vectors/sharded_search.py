"""Exact search by all processes, each in its shard of the documents."""

from collections.abc import Sequence

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.search import QUERIES_PER_BLOCK, Searcher, search_arrays
from pyserini_ance.vectors.topk import ScoresAndRows, best_of


class FlatIndex:
    """Exact search by all processes; `own` searches this process's shard of `documents` without a copy."""

    def __init__(self, documents: ShardedVectors, own: Searcher, world: World):
        self.documents, self.own, self.world = documents, own, world

    def __call__(self, queries: torch.Tensor, k: int) -> ScoresAndRows:
        """Scores (Q, k) float32 and rows (Q, k) int32, best first: on the device, if there is one process.

        Called by all processes with equal queries (Q, D), between steps of even length: none waits long for
        another.
        """
        k = min(k, len(self.documents))
        if self.world.size == 1:
            return self.own(queries, k)
        scores, rows = merge_shards(*search_arrays(self.own, queries, k), self.documents, k, self.world)
        return torch.from_numpy(scores), torch.from_numpy(rows)


def search_shards(
    searcher: Searcher,
    queries: np.ndarray,
    documents: ShardedVectors,
    k: int,
    world: World,
    shares: Sequence[int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`exact_search` over all `documents`: scores (Q, k) float32 and rows (Q, k) int32.

    Called by all processes with equal queries (Q, D); `searcher` is over `documents.own`. Every process gets
    the results of all queries; with `shares`, the number of queries of each process in rank order, only those
    of its own.
    """
    scores, rows = search_arrays(searcher, queries, min(k, len(documents)))
    world.barrier()  # shards take uneven time
    if shares is None or world.size == 1:
        return merge_shards(scores, rows, documents, k, world)
    return _merge_own(scores, rows, documents, k, world, shares)


def merge_shards(
    scores: np.ndarray, rows: np.ndarray, documents: ShardedVectors, k: int, world: World
) -> tuple[np.ndarray, np.ndarray]:
    """The k best of all shards, on every process, from the best of each; `rows` count within the shard."""
    k, rows = min(k, len(documents)), rows + np.int32(documents.first)
    if world.size == 1:
        return scores, rows
    scores, rows = _widen(scores, k, np.nan), _widen(rows, k, -1)
    for start in range(0, len(scores), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        scores[block], rows[block] = best_of(
            world.gather(torch.from_numpy(scores[block])), world.gather(torch.from_numpy(rows[block])), k
        )
    return scores, rows


def _merge_own(
    scores: np.ndarray,
    rows: np.ndarray,
    documents: ShardedVectors,
    k: int,
    world: World,
    shares: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:
    """The lines of `merge_shards` for this process's own queries, which nobody else receives."""
    k, rows = min(k, len(documents)), rows + np.int32(documents.first)
    scores, rows = _widen(scores, k, np.nan), _widen(rows, k, -1)
    firsts = np.cumsum([0, *shares])
    for start in range(0, max(shares), QUERIES_PER_BLOCK):
        blocks = [
            slice(first + min(start, share), first + min(start + QUERIES_PER_BLOCK, share))
            for first, share in zip(firsts[:-1].tolist(), shares, strict=True)
        ]
        own = blocks[world.rank]
        scores[own], rows[own] = best_of(
            world.exchange([torch.from_numpy(scores[block]) for block in blocks]),
            world.exchange([torch.from_numpy(rows[block]) for block in blocks]),
            k,
        )
    own = slice(firsts[world.rank], firsts[world.rank + 1])
    return scores[own].copy(), rows[own].copy()


def _widen(values: np.ndarray, k: int, filling: float) -> np.ndarray:
    """(Q, k): a shard with fewer than k documents is filled up with values that `_best` puts last."""
    if values.shape[1] >= k:
        return values
    return np.pad(values, ((0, 0), (0, k - values.shape[1])), constant_values=filling)
