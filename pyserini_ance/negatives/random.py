"""Random negatives: anything that is not a known positive (the papers' "Rand Neg")."""

from typing import Literal

import numpy as np

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.source import Source, fill_random
from pyserini_ance.negatives.table import PADDING, NegativeTable


class Random(Source):
    kind: Literal["random"] = "random"

    def draw(self, rows: np.ndarray, table: NegativeTable | None, direction: Direction, rng: np.random.Generator) -> np.ndarray:
        nothing = np.full((len(rows), self.per_query), PADDING)
        return fill_random(nothing, rows, direction, rng)
