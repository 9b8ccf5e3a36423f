"""Examine only the top of each ranking: what filters then remove is not replaced by later candidates."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.negatives.filters.base import Candidates, Filter
from pyserini_ance.negatives.table import PADDING


class RangeMax(Filter):
    """Removes all but the first `ranks` candidates of each ranking, known positives not counted.

    Nor are those counted that earlier filters remove: before `range_min` it keeps ranks up to `ranks`, after
    it so many ranks more.
    With `answers`: microsoft/ANCE examines the first 100 of the top 200 that are not the positive, and keeps
    those without an answer (run_ann_data_gen_dpr.py); DANCE's copy of these lines has the comment "BUG?".
    """

    kind: Literal["range_max"] = "range_max"
    ranks: PositiveInt
    """The number of top-ranked candidates that may be negatives."""

    def mask(self, candidates: Candidates) -> np.ndarray:
        anchor_set, rows = candidates.anchor_set, candidates.rows
        known = is_known_positive(anchor_set.known_positives, anchor_set.anchors, rows)
        return np.cumsum((rows != PADDING) & ~known, axis=1, dtype=np.int32) > self.ranks
