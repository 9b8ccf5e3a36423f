"""Lookahead negatives: the neighbours of an anchor's positive, which training is about to pull towards the anchor.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, Eq. 6.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.collection import Side
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import NegativeTable


class Lookahead(MinedSource):
    """`depth` neighbours of the anchor's first positive, after all its known positives are taken out, that one among them.

    Scores are those of the neighbours for the positive. With several positives the first in the qrels is asked, as the
    paper's code does.
    """

    kind: Literal["lookahead"] = "lookahead"
    depth: PositiveInt = 200
    refreshed: ClassVar[bool] = True
    asks_positives: ClassVar[bool] = True

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        direction = snapshot.direction(anchor)
        relation = direction.relation
        # Anchors that share a positive share its neighbours.
        positives, of_anchor = np.unique(relation.rows[relation.offsets[direction.anchors]], return_inverse=True)
        scores, found = snapshot.search(direction.candidate, positives, direction.candidate, self.depth + self.extra_depth(direction))
        return self.table_of(Candidates(snapshot, direction, found[of_anchor], scores[of_anchor]), self.depth)
