"""Exact search by all processes, each in its shard of the documents."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch.nn import functional

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.search import QUERIES_PER_BLOCK, Searcher, as_tensor
from pyserini_ance.vectors.topk import ScoresAndRows, best_of


def search_flat(
    own: Searcher, documents: ShardedVectors, world: World, queries: torch.Tensor, k: int
) -> ScoresAndRows:
    """As `search_shards`, from tensors to tensors on the device of the search `own`.

    Called between steps of even length: no process waits long for another.
    """
    k = min(k, len(documents))
    return merge_shards(*own(queries, k), documents, k, world)


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
    scores, rows = searcher(as_tensor(np.asarray(queries, np.float32)), min(k, len(documents)))
    rows[:1].cpu()  # a GPU may still search, and shards take uneven time: a collective waits for a minute
    world.barrier()
    scores, rows = merge_shards(scores, rows, documents, k, world, shares)
    return scores.cpu().numpy(), rows.cpu().numpy()


def merge_shards(
    scores: torch.Tensor,
    rows: torch.Tensor,
    documents: ShardedVectors,
    k: int,
    world: World,
    shares: Sequence[int] | None = None,
) -> ScoresAndRows:
    """The k best of all shards from the best of each; `rows` count within the shard.

    Every process merges a share of the queries and receives the rest; with `shares`, only its own.
    """
    if world.size == 1:
        return scores, rows
    bounds = [len(scores) * rank // world.size for rank in range(world.size + 1)]
    counts = [end - start for start, end in pairwise(bounds)] if shares is None else list(shares)
    packed = _pack(scores, rows + documents.first, min(k, len(documents))).split(counts)
    own = packed[world.rank]
    for start in range(0, max(counts), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        own[block] = _merge([of_rank[block] for of_rank in packed], world)
    return _unpack(own if shares is not None else torch.cat(world.gather(own, counts)))


def _merge(parts: list[torch.Tensor], world: World) -> torch.Tensor:
    """The best (B, 2, k) of all shards for this process's queries, from the best of this shard.

    `parts` (n_r, 2, k) are those for the queries of each process, in rank order.
    """
    found = [_unpack(part) for part in world.exchange(parts)]
    best = best_of([scores for scores, _ in found], [rows for _, rows in found], found[0][0].shape[1])
    return _pack(*best, found[0][0].shape[1])


def _pack(scores: torch.Tensor, rows: torch.Tensor, k: int) -> torch.Tensor:
    """(Q, 2, k) int32, one message: the bits of the scores, so that NaN keeps its own, and the rows.

    A shard with fewer than k documents is filled up with values that `best_of` puts last.
    """
    missing = (0, k - scores.shape[1])
    scores = functional.pad(scores, missing, value=torch.nan)
    return torch.stack([scores.view(torch.int32), functional.pad(rows, missing, value=-1)], 1)


def _unpack(packed: torch.Tensor) -> ScoresAndRows:
    return packed[:, 0].contiguous().view(torch.float32), packed[:, 1].contiguous()
