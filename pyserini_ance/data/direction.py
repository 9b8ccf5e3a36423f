"""Direction: a split as one side sees it. A term of the loss has one, and with it every table of negatives."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyserini_ance.data.collection import Collection, Relation, Side, Split


@dataclass(frozen=True)
class Direction:
    """Anchors of one side, and what is relevant to them among the `candidates` rows of the other side.

    `chunk` leaves only these rows of the queries, or the documents that are relevant to them, as anchors.
    """

    split: Split
    anchor: Side
    candidates: int
    chunk: np.ndarray | None = None

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

    @cached_property
    def anchors(self) -> np.ndarray:
        """(A,) int32, ascending: every query, or every document that is relevant to one."""
        if self.chunk is None:
            return self.relation.anchors
        relation = self.split.relation("query")
        queries = relation.anchors[self.chunk]
        return queries if self.anchor == "query" else np.unique(relation.subset(queries).rows)
