"""Random negatives: any row that is not a known positive (the papers' "Rand Neg")."""

from typing import Literal

import numpy as np

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.source import Source
from pyserini_ance.negatives.table import PADDING, NegativeTable, fill_random


class Random(Source):
    """Draws uniformly from all rows of the other side; needs no table."""

    kind: Literal["random"] = "random"

    def draw(
        self, rows: np.ndarray, table: NegativeTable | None, anchor_set: AnchorSet, rng: np.random.Generator
    ) -> np.ndarray:
        return fill_random(np.full((len(rows), self.num_negatives), PADDING), rows, anchor_set, rng)
