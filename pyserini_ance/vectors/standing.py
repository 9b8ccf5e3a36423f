"""Search that stands: over documents that stay as they are, asked at every step with a few queries."""

import numpy as np

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors.search import Searcher
from pyserini_ance.vectors.sharded_search import merge_shards
from pyserini_ance.vectors.shards import ShardedVectors


class FlatSearch:
    """Exact. `own` searches this process's shard of `documents`, where it stands: no vector is read or copied for a search."""

    def __init__(self, documents: ShardedVectors, own: Searcher, world: World):
        self.documents, self.own, self.world = documents, own, world

    def __call__(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores (Q, k) float32 and rows (Q, k) int32, best first.

        Called by all processes with equal queries (Q, D), between steps of even length: none waits long for another.
        """
        found = self.own(queries, min(k, len(self.documents)))
        return merge_shards(*found, self.documents, k, self.world)
