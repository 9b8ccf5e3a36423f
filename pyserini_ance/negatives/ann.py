"""ANCE's negatives: what the model that is being trained retrieves for an anchor and should not.

Sources: documents for a query, Xiong et al. 2021, arXiv:2007.00808, Eq. 9; queries for a document, the dual term of
Li et al. 2021 (DANCE). Sampled from the top `depth`, uniformly as in the paper; `sample: hardest` is what microsoft/ANCE
does with its switch `--ann_measure_topk_mrr`.
"""

from typing import ClassVar, Literal

from pydantic import PositiveInt

from pyserini_ance.data.collection import Side
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import NegativeTable


class Ann(MinedSource):
    """`depth` candidates are kept for each anchor, after its known positives, and what guards mark, are taken out."""

    kind: Literal["ann"] = "ann"
    depth: PositiveInt = 200
    refreshed: ClassVar[bool] = True
    ranked: ClassVar[bool] = True
    scores_positives: ClassVar[bool] = True

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        direction = snapshot.direction(anchor)
        scores, found = snapshot.search(anchor, direction.anchors, direction.candidate, self.depth + self.extra_depth(direction))
        # Differs from microsoft/ANCE: there only the last positive in the qrels is excluded.
        return self.table_of(Candidates(snapshot, direction, found, scores, lambda: snapshot.positive_scores(anchor)), self.depth)
