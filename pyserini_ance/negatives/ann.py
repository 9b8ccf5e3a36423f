"""ANCE's negatives: what the model that is being trained retrieves for a query and should not.

Source: Xiong et al. 2021, arXiv:2007.00808, Eq. 9; sampled uniformly from the top `depth`.
"""

from typing import ClassVar, Literal

from pydantic import PositiveInt

from pyserini_ance.negatives.guards import KNOWN_POSITIVES, known_positive, take_out
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import NegativeTable


class Ann(MinedSource):
    """`depth` candidates are kept for each query, after its known positives are taken out."""

    kind: Literal["ann"] = "ann"
    depth: PositiveInt = 200
    refreshed: ClassVar[bool] = True

    def mine(self, snapshot: Snapshot) -> NegativeTable:
        qrels = snapshot.split.qrels
        anchors = snapshot.query_rows
        scores, found = snapshot.search(self.depth + snapshot.most_positives)
        # Differs from microsoft/ANCE: there only the last positive in the qrels is excluded.
        marked = {KNOWN_POSITIVES: known_positive(qrels, anchors, found)}
        candidates, scores, dropped = take_out(found, scores, marked, self.depth)
        return NegativeTable("query", "document", anchors, candidates, scores, self.kind, dropped)
