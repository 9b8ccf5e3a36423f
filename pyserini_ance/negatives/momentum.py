"""Momentum negatives: all candidates of the previous stage's last tables, with their origins.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, Eq. 5.
"""

from dataclasses import replace
from typing import ClassVar, Literal

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.mix import concatenate
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext, TableSource
from pyserini_ance.negatives.table import NegativeTable


class Momentum(TableSource):
    """The tables of the term of the same name in the previous stage, concatenated; duplicates are kept.

    The first stage has no previous tables (Eq. 7) and cannot use this source. Scores are those of the
    earlier mining. Pairs that the previous stage promoted are neither candidates nor positives. An anchor
    that they lack, a question with a new positive, has no candidates of them.
    """

    kind: Literal["momentum"] = "momentum"
    uses_previous_tables: ClassVar[bool] = True

    def max_candidates(self, previous_stage: int) -> int:
        return previous_stage

    def mine(
        self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext = MiningContext()
    ) -> NegativeTable:
        if not context.previous_stage:
            cure = "remove this source from the first stage"
            raise ValueError(f"negatives momentum: there are no tables of a previous stage; {cure}")
        own = [table.filled_up(anchor_set.anchors) for table in context.previous_stage]
        return concatenate([replace(table, promoted=None) for table in own], self.kind, {}, snapshot.world)
