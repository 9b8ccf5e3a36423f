"""Momentum negatives: those that the stage before drew from when it ended, all of them, with their own origins.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, Eq. 5.
"""

from typing import ClassVar, Literal

from pyserini_ance.data.collection import Side
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.mixing import concatenate
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import TableSource
from pyserini_ance.negatives.table import NegativeTable


class Momentum(TableSource):
    """The tables of the term of the same name in the stage before, one after the other; duplicates stay.

    A first stage has none before it (Eq. 7): leave the source out there. Scores are those of their own time.
    """

    kind: Literal["momentum"] = "momentum"
    takes_over: ClassVar[bool] = True

    def most_candidates(self, former: int) -> int:
        return former

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        if not episode.former:
            raise ValueError("negatives momentum: there are no tables of a former stage; a first stage leaves this source out")
        return concatenate(episode.former, self.kind, {})
