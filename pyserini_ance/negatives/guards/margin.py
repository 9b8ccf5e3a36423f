"""Leave out what scores nearly as high as the positive, or higher: by an absolute margin."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard


class Margin(Guard):
    """Out goes what scores above the anchor's best known positive minus `margin`, in the source's own scores.

    Nothing goes where the positive has no score: a run may not rank it.
    Source: the absolute margin of Moreira et al. 2024, arXiv:2407.15831 (NV-Retriever, "TopK-MarginPos").
    """

    kind: Literal["margin"] = "margin"
    margin: float = Field(ge=0)
    compares: ClassVar[bool] = True

    def mark(self, candidates: Candidates) -> np.ndarray:
        return candidates.scores > (candidates.positive_scores - self.margin)[:, None]
