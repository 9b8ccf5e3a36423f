"""ANCE's negatives: what the model that is being trained retrieves for an anchor and should not.

Sources: documents for a query, Xiong et al. 2021, arXiv:2007.00808, Eq. 9; queries for a document, the dual term of
Li et al. 2021 (DANCE). Sampled uniformly from the top `depth`.
"""

from typing import ClassVar, Literal

from pydantic import PositiveInt

from pyserini_ance.data.collection import Side
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.guards import KNOWN_POSITIVES, known_positive, take_out
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import NegativeTable


class Ann(MinedSource):
    """`depth` candidates are kept for each anchor, after its known positives are taken out."""

    kind: Literal["ann"] = "ann"
    depth: PositiveInt = 200
    refreshed: ClassVar[bool] = True
    ranked: ClassVar[bool] = True

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        direction = snapshot.direction(anchor)
        most = int(direction.relation.counts.max())  # so many more to fetch that enough negatives are left
        scores, found = snapshot.search(anchor, direction.anchors, direction.candidate, self.depth + most)
        # Differs from microsoft/ANCE: there only the last positive in the qrels is excluded.
        marked = {KNOWN_POSITIVES: known_positive(direction.relation, direction.anchors, found)}
        candidates, scores, dropped = take_out(found, scores, marked, self.depth)
        return NegativeTable(anchor, direction.candidate, direction.anchors, candidates, scores, self.kind, dropped)
