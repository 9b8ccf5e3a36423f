"""Lookahead negatives: the neighbours of an anchor's positive, which training pulls towards the anchor.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, Eq. 6.
"""

from functools import cache
from typing import ClassVar, Literal

import numpy as np

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.filters.base import Candidates
from pyserini_ance.negatives.mined import SearchedSource
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import PADDING, NegativeTable


class Lookahead(SearchedSource):
    """Searches with the vector of the anchor's first positive in the qrels, as the paper's code does.

    Scores are those between that positive and its neighbours; of documents in several passages (MaxP), the
    best score between a passage of the one and a passage of the other. Margin filters compare the anchor's
    scores: with the neighbour, and with its best positive.
    """

    kind: Literal["lookahead"] = "lookahead"
    is_dynamic: ClassVar[bool] = True
    scores_anchors: ClassVar[bool] = True

    def mine(
        self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext = MiningContext()
    ) -> NegativeTable:
        side, known_positives = anchor_set.candidate, anchor_set.known_positives
        top_k = self.top_k_of(anchor_set)
        # Anchors with the same positive share its neighbours.
        first = known_positives.rows[known_positives.offsets[anchor_set.anchors]]
        positives, of_anchor = np.unique(first, return_inverse=True)
        scores, rows = snapshot.search(side, positives, side, top_k + self.extra_candidates(anchor_set))
        neighbours = rows[of_anchor]
        candidates = Candidates(
            snapshot,
            anchor_set,
            neighbours,
            scores[of_anchor],
            cache(lambda: snapshot.positive_scores(anchor_set)),
            cache(lambda: _anchor_scores(snapshot, anchor_set, neighbours)),
        )
        return self.table_of(candidates, top_k)


def _anchor_scores(snapshot: Snapshot, anchor_set: AnchorSet, rows: np.ndarray) -> np.ndarray:
    """(A, n) float32: the scores between the anchors and their candidates `rows` (A, n); -inf at PADDING."""
    present = rows != PADDING
    pairs = np.repeat(anchor_set.anchors, present.sum(1)), rows[present]
    queries, documents = pairs if anchor_set.anchor == "query" else pairs[::-1]
    scores = np.full(rows.shape, -np.inf, np.float32)
    scores[present] = snapshot.score(snapshot.query_vectors, queries, documents)
    return scores
