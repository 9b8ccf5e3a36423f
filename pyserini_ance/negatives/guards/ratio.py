"""Leave out what scores nearly as high as the positive, or higher: by a share of the positive's score."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard


class Ratio(Guard):
    """Out goes what scores above `ratio` times the anchor's best known positive, in the source's own scores.

    Nothing goes where the positive has no score: a run may not rank it.
    Source: Moreira et al. 2024, arXiv:2407.15831 (NV-Retriever, "TopK-PercPos", 0.95 of a cosine).
    """

    kind: Literal["ratio"] = "ratio"
    ratio: float = Field(default=0.95, gt=0, le=1)
    compares: ClassVar[bool] = True

    def mark(self, candidates: Candidates) -> np.ndarray:
        # Differs from the paper: below 0, which no cosine of theirs was, a share of the score would lie above the positive.
        positive = candidates.positive_scores
        return candidates.scores > (positive - (1 - self.ratio) * np.abs(positive))[:, None]
