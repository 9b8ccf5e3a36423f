"""Remove the top of each ranking: the first hits of a good retriever are often relevant but not judged."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.negatives.filters.base import Candidates, Filter


class RangeMin(Filter):
    """Removes the first `ranks` candidates of each ranking, known positives included.

    FlagEmbedding's `range_for_sampling` counts in the same way.
    """

    kind: Literal["range_min"] = "range_min"
    ranks: PositiveInt
    """The number of top-ranked candidates to remove."""

    @property
    def extra_candidates(self) -> int:
        return self.ranks

    def mask(self, candidates: Candidates) -> np.ndarray:
        return np.broadcast_to(np.arange(candidates.rows.shape[1]) < self.ranks, candidates.rows.shape)
