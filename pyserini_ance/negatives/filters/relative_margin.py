"""Remove candidates that score almost as high as the positive, or higher: a margin relative to its score."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from pyserini_ance.negatives.filters.base import Candidates, Filter


class RelativeMargin(Filter):
    """Removes candidates that score above p - `margin` * |p|.

    p is the score of the anchor's best known positive. Scores are the source's own; of `lookahead`, whose own
    are the positive's, those between anchor and candidate. Nothing is removed for an anchor whose positive
    has no score, because a ranking may not contain it.
    Source: Moreira et al. 2024, arXiv:2407.15831 (NV-Retriever, "TopK-PercPos": 0.95 of a cosine, a margin
    of 0.05).
    """

    kind: Literal["relative_margin"] = "relative_margin"
    margin: float = Field(default=0.05, ge=0, lt=1)
    """The share of the positive's score by which a negative must stay below it."""
    needs_positive_scores: ClassVar[bool] = True

    def mask(self, candidates: Candidates) -> np.ndarray:
        # Differs from the paper: it uses p * (1 - margin), which would be above a negative p; its cosines
        # were positive.
        positive = candidates.positive_scores
        return candidates.anchor_scores > (positive - self.margin * np.abs(positive))[:, None]
