"""Exact search over shards: each process searches its own with all queries, then the best of all are merged."""

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import search
from pyserini_ance.vectors.search import Searcher
from pyserini_ance.vectors.shards import ShardedVectors


def search_shards(
    searcher: Searcher, queries: np.ndarray, documents: ShardedVectors, k: int, world: World
) -> tuple[np.ndarray, np.ndarray]:
    """What `exact_search` finds in `documents` as a whole: scores (Q, k) float32 and rows (Q, k) int32, on every process.

    Called by all processes with equal queries (Q, D); `searcher` is over `documents.own`.
    """
    scores, rows = searcher(queries, min(k, len(documents)))
    world.meet()  # shards take uneven time
    return merge_shards(scores, rows, documents, k, world)


def merge_shards(scores: np.ndarray, rows: np.ndarray, documents: ShardedVectors, k: int, world: World) -> tuple[np.ndarray, np.ndarray]:
    """The k best in all shards, on every process, from what each has found in its own: `rows` count from its first document."""
    k, rows = min(k, len(documents)), rows + np.int32(documents.first)
    if world.size == 1:
        return scores, rows
    scores, rows = _widen(scores, k, np.nan), _widen(rows, k, -1)
    for start in range(0, len(scores), search.QUERIES_PER_BLOCK):
        block = slice(start, start + search.QUERIES_PER_BLOCK)
        scores[block], rows[block] = _best(_side_by_side(scores[block], world), _side_by_side(rows[block], world), k)
    return scores, rows


def _widen(found: np.ndarray, k: int, filling: float) -> np.ndarray:
    """(Q, k): a shard with fewer than k documents fills up with what `_best` puts last."""
    return np.pad(found, ((0, 0), (0, k - found.shape[1])), constant_values=filling) if found.shape[1] < k else found


def _side_by_side(found: np.ndarray, world: World) -> np.ndarray:
    """(B, processes * k), in the order of the shards, which is that of their rows."""
    return np.concatenate([part.numpy() for part in world.gather(torch.from_numpy(found))], axis=1)


def _best(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Stable: of equal scores, the lower rows stay ahead. NaN comes last, even after -inf."""
    kept = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)
