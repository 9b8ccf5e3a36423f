"""Remove candidates that score almost as high as the positive, or higher: an absolute margin."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from pyserini_ance.negatives.filters.base import Candidates, Filter


class AbsoluteMargin(Filter):
    """Removes candidates that score above p - `margin`.

    p is the score of the anchor's best known positive. Scores are the source's own; of `lookahead`, whose own
    are the positive's, those between anchor and candidate. Nothing is removed for an anchor whose positive
    has no score, because a ranking may not contain it.
    Source: the absolute margin of Moreira et al. 2024, arXiv:2407.15831 (NV-Retriever, "TopK-MarginPos").
    """

    kind: Literal["absolute_margin"] = "absolute_margin"
    margin: float = Field(ge=0)
    """The distance to the positive's score that a negative must keep, on the source's scale."""
    needs_positive_scores: ClassVar[bool] = True

    def mask(self, candidates: Candidates) -> np.ndarray:
        return candidates.anchor_scores > (candidates.positive_scores - self.margin)[:, None]
