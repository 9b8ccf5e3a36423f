"""ANCE negatives: what the current model retrieves for an anchor, without the known positives.

Sources: documents for a query, Xiong et al. 2021, arXiv:2007.00808, Eq. 9; queries for a document, the dual
term of Li et al. 2021 (DANCE). Negatives are sampled at random from the top `top_k`, as in the paper;
`sampling_strategy: top` is the effect of `--ann_measure_topk_mrr` in microsoft/ANCE.
"""

from typing import ClassVar, Literal

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.filters.base import Candidates
from pyserini_ance.negatives.mined import SearchedSource
from pyserini_ance.negatives.snapshot import Searched, Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import NegativeTable


class Ann(SearchedSource):
    """Searches all rows of the other side with each anchor's vector."""

    kind: Literal["ann"] = "ann"
    top_k_unit: Literal["document", "passage"] = "document"
    """What `top_k` and `oversample` count where documents have several passages (MaxP): documents, each by
    its best passage; or passages, so that a query's candidates are the documents of its `top_k` nearest
    passages. These are fewer, and known positives among them are not replaced, as in the code of ANCE."""
    is_dynamic: ClassVar[bool] = True
    scores_comparable: ClassVar[bool] = True
    scores_positives: ClassVar[bool] = True

    def check_data(self, anchor_set: AnchorSet) -> None:
        super().check_data(anchor_set)
        if self.top_k_unit == "passage" and anchor_set.anchor == "document":
            raise ValueError(
                "top_k_unit: passage counts passages of documents, but a term with `anchor: document` "
                "retrieves queries; remove the key there"
            )

    def mine(self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext) -> NegativeTable:
        top_k, by_passage = self.top_k_of(anchor_set), self.top_k_unit == "passage"
        k = top_k + (self.extra_for_filters if by_passage else self.extra_candidates(anchor_set))
        over: Searched = "passage" if by_passage and snapshot.passages else anchor_set.candidate
        scores, rows = snapshot.search(anchor_set.anchor, anchor_set.anchors, over, k)
        if by_passage and snapshot.passages:
            scores, rows = snapshot.passages.of_ranking(scores, rows)
        # Differs from microsoft/ANCE: it removes only the last positive in the qrels, so other positives
        # are negatives; `positives: last` does the same.
        found = Candidates(snapshot, anchor_set, rows, scores, lambda: snapshot.positive_scores(anchor_set))
        return self.table_of(found, top_k)
