"""Search that stands: over documents that stay as they are, asked at every step with a few queries."""

import numpy as np

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors.search import Backend, searcher, standing
from pyserini_ance.vectors.sharded_search import merge_shards
from pyserini_ance.vectors.shards import ShardedVectors


class FlatSearch:
    """Exact. Each process searches its own shard, which it holds on its device; no vector is read or copied for a search.

    `whole` (N, D) are all documents where this process holds them so.
    """

    def __init__(self, documents: ShardedVectors, backend: Backend, device: str, world: World):
        self.documents, self.world = documents, world
        own = standing(documents.own, device) if backend == "torch" else documents.own
        self.whole = own if backend == "torch" and world.size == 1 else None
        self.search = searcher(own, backend, device, world)

    def __call__(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores (Q, k) float32 and rows (Q, k) int32, best first.

        Called by all processes with equal queries (Q, D), between steps of even length: none waits long for another.
        """
        found = self.search(queries, min(k, len(self.documents)))
        return merge_shards(*found, self.documents, k, self.world)
