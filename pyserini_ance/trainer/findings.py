"""Findings: what the live searches of a step have found, measured before anything else is done with it.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Figure 3: MRR@10, recall and the overlap with BM25 at each step.
"""

import numpy as np

from pyserini_ance.data.collection import Relation
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.table import PADDING

RANKS = 10


class Findings:
    """Means over the queries of a step, by term and place of its live source (`query.0`).

    `bm25` (queries, n) are document rows as BM25 ranks them, PADDING where there is none.
    """

    def __init__(self, relation: Relation, bm25: np.ndarray | None = None):
        self.relation, self.bm25 = relation, bm25
        self._values: dict[str, dict[str, float]] = {}
        self._seconds = 0.0

    def add(self, name: str, rows: np.ndarray, found: np.ndarray, share: float, seconds: float) -> None:
        """Of the queries `rows` (B,), `share` of the step's, the documents `found` (B, k), best first."""
        self._seconds += seconds
        so_far = self._values.setdefault(name, {})
        for measure, each in self._measures(rows, found).items():
            so_far[measure] = so_far.get(measure, 0.0) + share * float(each.mean())

    def take(self) -> dict:
        """What to record of the step, which is over; nothing where nothing was searched."""
        values, seconds = self._values, self._seconds
        self._values, self._seconds = {}, 0.0
        if not values:
            return {}
        rounded = {name: {measure: round(value, 6) for measure, value in of.items()} for name, of in values.items()}
        return {"found": rounded, "search_seconds": round(seconds, 4)}

    def _measures(self, rows: np.ndarray, found: np.ndarray) -> dict[str, np.ndarray]:
        """(B,) each."""
        hits, depth = known_positive(self.relation, rows, found), found.shape[1]
        top = hits[:, :RANKS]
        measures = {
            f"RR@{RANKS}": np.where(top.any(1), 1 / (top.argmax(1) + 1), 0.0),
            f"R@{depth}": hits.sum(1) / self.relation.counts[rows],
        }
        if self.bm25 is not None:
            n = min(depth, self.bm25.shape[1])
            theirs = self.bm25[rows, :n]
            shared = (found[:, :n, None] == theirs[:, None, :]) & (theirs != PADDING)[:, None, :]
            measures[f"BM25 overlap@{n}"] = shared.any(2).mean(1)
        return measures
