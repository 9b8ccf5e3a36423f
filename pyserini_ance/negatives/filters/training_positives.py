"""Remove candidates that no training query asks for, which would be negatives and never a positive."""

from typing import Literal

import numpy as np

from pyserini_ance.negatives.filters.base import Candidates, Filter


class TrainingPositives(Filter):
    """Keeps candidates that are a positive of another training query.

    In-batch negatives are such documents, and so are those of sentence-transformers' `mine_hard_negatives`
    without a corpus. Where a good part of a small collection has no training query, other mined negatives
    teach that this part answers nothing. In a large collection few candidates remain.
    """

    kind: Literal["training_positives"] = "training_positives"

    def mask(self, candidates: Candidates) -> np.ndarray:
        anchor_set = candidates.anchor_set
        is_positive = np.zeros(anchor_set.candidates, bool)
        is_positive[anchor_set.known_positives.rows] = True
        return ~is_positive[candidates.rows]
