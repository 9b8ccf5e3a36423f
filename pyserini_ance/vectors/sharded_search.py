"""Exact search by all processes, each in its shard of the documents."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch.nn import functional

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.search import QUERIES_PER_BLOCK, Searcher
from pyserini_ance.vectors.topk import ScoresAndRows, best_of


def search_shards(
    searcher: Searcher,
    documents: ShardedVectors,
    world: World,
    queries: torch.Tensor,
    k: int,
    shares: Sequence[int] | None = None,
    takes_long: bool = False,
) -> ScoresAndRows:
    """As `searcher`, over all `documents`: scores (Q, k) float32 and rows (Q, k) int32, on its device.

    Called by all processes with equal queries (Q, D); `searcher` is over `documents.own`. Every process
    merges a share of the queries and gets the results of all; with `shares`, the number of queries of each
    process in rank order, only those of its own. takes_long: shards may take uneven time, so that processes
    first wait for one another; between steps they need not.
    """
    k = min(k, len(documents))
    scores, rows = searcher(queries, k)
    if world.size == 1:
        return scores, rows
    if takes_long:
        rows[:1].cpu()  # a GPU may still search, and a collective waits for a minute only
        world.barrier()
    bounds = [len(scores) * rank // world.size for rank in range(world.size + 1)]
    counts = [end - start for start, end in pairwise(bounds)] if shares is None else list(shares)
    packed = _pack(scores, rows + documents.first, k).split(counts)
    own = packed[world.rank]
    for start in range(0, max(counts), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        # The best of each shard for this process's queries, in rank order.
        found = [_unpack(part) for part in world.exchange([of_rank[block] for of_rank in packed])]
        best = best_of([scores for scores, _ in found], [rows for _, rows in found], k)
        own[block] = _pack(*best, k)
    return _unpack(own if shares is not None else torch.cat(world.gather(own, counts)))


def _pack(scores: torch.Tensor, rows: torch.Tensor, k: int) -> torch.Tensor:
    """(Q, 2, k) int32, one message: the bits of the scores, so that NaN keeps its own, and the rows.

    A shard with fewer than k documents is filled up with values that `best_of` puts last.
    """
    missing = (0, k - scores.shape[1])
    scores = functional.pad(scores, missing, value=torch.nan)
    return torch.stack([scores.view(torch.int32), functional.pad(rows, missing, value=-1)], 1)


def _unpack(packed: torch.Tensor) -> ScoresAndRows:
    return packed[:, 0].contiguous().view(torch.float32), packed[:, 1].contiguous()
