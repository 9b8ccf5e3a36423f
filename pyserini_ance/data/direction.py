"""Direction: a split as one side sees it. A term of the loss has one, and with it every table of negatives."""

from dataclasses import dataclass

import numpy as np

from pyserini_ance.data.collection import Collection, Relation, Side, Split


@dataclass(frozen=True)
class Direction:
    """Anchors of one side, and what is relevant to them among the `candidates` rows of the other side."""

    split: Split
    anchor: Side
    candidates: int

    @classmethod
    def of(cls, collection: Collection, split: str, anchor: Side) -> "Direction":
        chosen = collection.split(split)
        return cls(chosen, anchor, len(collection.documents if anchor == "query" else chosen.queries))

    @property
    def candidate(self) -> Side:
        return "document" if self.anchor == "query" else "query"

    @property
    def relation(self) -> Relation:
        return self.split.relation(self.anchor)

    @property
    def anchors(self) -> np.ndarray:
        """(A,) int32, ascending: every query, or every document that is relevant to one."""
        return self.relation.anchors
