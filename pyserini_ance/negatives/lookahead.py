"""Lookahead negatives: the neighbours of an anchor's positive, which training pulls towards the anchor.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, Eq. 6.
"""

from typing import ClassVar, Literal

import numpy as np

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.filters.base import Candidates
from pyserini_ance.negatives.mined import SearchedSource
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import NegativeTable


class Lookahead(SearchedSource):
    """Searches with the vector of the anchor's first positive in the qrels, as the paper's code does.

    Scores are those between that positive and its neighbours; of documents in several passages (MaxP), the
    best score between a passage of the one and a passage of the other.
    """

    kind: Literal["lookahead"] = "lookahead"
    is_dynamic: ClassVar[bool] = True

    def mine(self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext) -> NegativeTable:
        side, known_positives = anchor_set.candidate, anchor_set.known_positives
        top_k = self.top_k_of(anchor_set)
        # Anchors with the same positive share its neighbours.
        first = known_positives.rows[known_positives.offsets[anchor_set.anchors]]
        positives, of_anchor = np.unique(first, return_inverse=True)
        scores, rows = snapshot.search(side, positives, side, top_k + self.extra_candidates(anchor_set))
        return self.table_of(Candidates(snapshot, anchor_set, rows[of_anchor], scores[of_anchor]), top_k)
