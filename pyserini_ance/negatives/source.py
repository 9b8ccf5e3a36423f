"""A source of negatives: what a recipe lists under `negatives:`."""

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.collection import Split
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.parts import Part


class Source(Part):
    """`per_query` negatives are drawn for each query of a step.

    `refreshed` sources are mined again at each refresh; `needs` names what the run must make ready (`bm25`).
    """

    per_query: PositiveInt = 1
    refreshed: ClassVar[bool] = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def check_data(self, split: Split, documents: int) -> None:
        """Raises ValueError or FileNotFoundError, before anything is trained, when this data cannot be served."""
        refuse_too_few(self.per_query, split, documents)

    @abstractmethod
    def draw(self, rows: np.ndarray, table: NegativeTable | None, split: Split, documents: int, rng: np.random.Generator) -> np.ndarray:
        """(B, per_query) document rows for query `rows` (B,); PADDING where there is none."""


class MinedSource(Source):
    """A source with a table over all training queries.

    `when_short` decides about queries with fewer candidates than `per_query`: an error, or random documents fill up.
    """

    when_short: Literal["error", "random"] = "error"

    @abstractmethod
    def mine(self, snapshot: Snapshot) -> NegativeTable:
        """The table, over every query of the snapshot's split in row order, without known positives."""

    def check(self, table: NegativeTable, split: Split) -> int:
        """The number of queries with fewer candidates than `per_query`; raises ValueError if that is not allowed."""
        short = np.flatnonzero(table.counts < self.per_query)
        if len(short) and self.when_short == "error":
            first = ", ".join(f"{split.queries.ids[row]} ({table.counts[row]})" for row in short[:5])
            raise ValueError(
                f"negatives {self.kind}: {len(short)} of {len(table.anchors)} queries have fewer than per_query={self.per_query} "
                f"candidates, first {first}. Lower per_query, raise depth, or set when_short: random to fill up with random documents."
            )
        return len(short)

    def draw(self, rows: np.ndarray, table: NegativeTable | None, split: Split, documents: int, rng: np.random.Generator) -> np.ndarray:
        return fill_random(table.draw(rows, self.per_query, rng), rows, split, documents, rng)


def fill_random(drawn: np.ndarray, rows: np.ndarray, split: Split, documents: int, rng: np.random.Generator) -> np.ndarray:
    """`drawn` (B, n) with a document for each PADDING (last in its row): uniform, distinct in the row, never a known
    positive of the row's query.

    Raises ValueError when the collection has too few documents for that.
    """
    bad = drawn == PADDING
    if bad.any():
        refuse_too_few(drawn.shape[1], split, documents)
    drawn = drawn.astype(np.int64)
    while bad.any():
        drawn[bad] = rng.integers(0, documents, int(bad.sum()))
        bad = known_positive(split.qrels, rows, drawn) | _repeats(drawn)
    return drawn.astype(np.int32)


def refuse_too_few(n: int, split: Split, documents: int) -> None:
    """Raises ValueError when a query of the split has fewer than `n` documents that are not its known positives."""
    counts = np.diff(split.qrels.relevant_offsets)
    most = int(counts.max())
    if documents - most < n:
        raise ValueError(
            f"per_query={n} negatives, but query {split.queries.ids[int(counts.argmax())]} has only {documents - most}: "
            f"{most} of the {documents} documents are its positives. Lower per_query."
        )


def _repeats(drawn: np.ndarray) -> np.ndarray:
    """(B, n) bool: is the document in an earlier column of its row already?"""
    order = np.argsort(drawn, axis=1, kind="stable")
    ranked = np.take_along_axis(drawn, order, 1)
    repeated = np.zeros(drawn.shape, bool)
    np.put_along_axis(repeated, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], 1)
    return repeated
