"""Leave out the top of each ranking: a good retriever's first hits are relevant more often than judged so."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard


class RankFloor(Guard):
    """The first `ranks` of what the source found; known positives among them count, as in FlagEmbedding's range for sampling."""

    kind: Literal["rank_floor"] = "rank_floor"
    ranks: PositiveInt

    @property
    def extra_depth(self) -> int:
        return self.ranks

    def mark(self, candidates: Candidates) -> np.ndarray:
        return np.broadcast_to(np.arange(candidates.rows.shape[1]) < self.ranks, candidates.rows.shape)
