"""Remove candidates above a score: what the retriever finds too relevant to be a negative, judged or not."""

from typing import Literal

import numpy as np

from pyserini_ance.negatives.filters.base import Candidates, Filter


class MaxScore(Filter):
    """Removes candidates that score above `max_score`, whatever the positive scores.

    Scores are the source's own.
    Source: Merrick et al. 2024, arXiv:2405.05374 (Snowflake Arctic-Embed), which tunes a maximum relevance
    for hard negatives.
    """

    kind: Literal["max_score"] = "max_score"
    max_score: float
    """The highest score that a negative may have, on the source's scale."""

    def mask(self, candidates: Candidates) -> np.ndarray:
        return candidates.scores > self.max_score
