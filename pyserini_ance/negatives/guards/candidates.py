"""Candidates: what a source has found for all anchors of a direction, before guards judge it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING


@dataclass(frozen=True)
class Candidates:
    """rows (A, n) in rank order, PADDING where there is none; scores (A, n). The direction's anchors are the first dimension.

    `score_positives` gives the score of each anchor's best known positive, (A,) in the space of `scores`, NaN where it has none.
    """

    snapshot: Snapshot
    direction: Direction
    rows: np.ndarray
    scores: np.ndarray
    score_positives: Callable[[], np.ndarray] | None = None

    @cached_property
    def positive_scores(self) -> np.ndarray:
        """Raises ValueError when the source has no such scores."""
        if self.score_positives is None:
            raise ValueError("a guard compares scores with the positive's, but this source gives positives no score; leave the guard out")
        return self.score_positives()

    def only(self, chosen: np.ndarray) -> "Candidates":
        """Those where `chosen` (A, n) is true, in their places."""
        return replace(self, rows=np.where(chosen, self.rows, PADDING))

    def mark_pairs(self, judge: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """(A, n) bool from `judge`, which is given query rows and document rows (P,), by rising document, and gives (P,) bool.

        The processes of the world share the pairs: all call this together.
        """
        places = np.nonzero(self.rows != PADDING)
        pairs = self.direction.anchors[places[0]], self.rows[places]
        queries, documents = pairs if self.direction.anchor == "query" else pairs[::-1]
        order, world = np.argsort(documents, kind="stable"), self.snapshot.world
        own = np.array_split(order, world.size)[world.rank]
        judged = torch.from_numpy(judge(queries[own], documents[own]).astype(np.uint8))
        marks = np.zeros(self.rows.shape, bool)
        marks[places[0][order], places[1][order]] = torch.cat(world.gather(judged)).numpy()
        return marks
