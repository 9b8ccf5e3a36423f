"""The collection: documents, and splits of queries with what is relevant to each.

Rows are contiguous ints in file order; string ids stay exactly as they were read. Strings and arrays are in memory, as a
format reads them, or memory-mapped from the cache (`stored.py`).
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np

from pyserini_ance.data.strings import Strings

logger = logging.getLogger(__name__)

Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")


@dataclass(frozen=True, eq=False)
class Texts:
    """Documents or queries: one id and one value of every field a row. Compare by `digest`."""

    ids: Sequence[str]
    columns: dict[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> dict[str, str]:
        return {name: values[row] for name, values in self.columns.items()}

    def take(self, rows: Iterable[int]) -> list[dict[str, str]]:
        return [self[row] for row in rows]

    def subset(self, rows: Sequence[int]) -> "Texts":
        """Only these rows, renumbered in the order given."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return Texts([self.ids[row] for row in rows], columns)

    def blocks(self, size: int, first: int = 0) -> Iterator[list[dict[str, str]]]:
        """All texts from row `first` on, so many at a time; what a mapped block took of memory is given back when the next is read."""
        for start in range(first, len(self), size):
            yield self.take(range(start, min(start + size, len(self))))
            for strings in (self.ids, *self.columns.values()):
                if isinstance(strings, Strings):
                    strings.release()

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each id."""
        return {id: row for row, id in enumerate(self.ids)}

    @cached_property
    def digest(self) -> str:
        """sha256 over the field names, then id and fields row by row, each with its length before it."""
        rows = zip(self.ids, *self.columns.values(), strict=True)
        parts = chain([str(len(self.columns))], self.columns, chain.from_iterable(rows))
        return _sha256(part.encode() for part in parts)


@dataclass(frozen=True, eq=False)
class Relation:
    """What is relevant to each row of one side: offsets (rows + 1,) int64 into int32 rows of the other side and their int32 grades."""

    offsets: np.ndarray
    rows: np.ndarray
    grades: np.ndarray

    def of(self, row: int) -> np.ndarray:
        return self.rows[self.offsets[row] : self.offsets[row + 1]]

    @property
    def counts(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def anchors(self) -> np.ndarray:
        """(A,) int32, ascending: the rows to which something is relevant."""
        return np.flatnonzero(self.counts).astype(np.int32)

    def subset(self, rows: np.ndarray) -> "Relation":
        """Only these, renumbered in the order given."""
        counts = self.counts[rows]
        offsets = _offsets(counts)
        places = np.repeat(self.offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Relation(offsets, self.rows[places], self.grades[places])

    def inverse(self) -> "Relation":
        """The other side, up to its last row that is relevant to something."""
        anchors = np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), self.counts)
        order = np.argsort(self.rows, kind="stable")
        return Relation(_offsets(np.bincount(self.rows)), anchors[order], self.grades[order])


@dataclass(frozen=True, eq=False)
class Qrels:
    """Judged documents of every query, compressed by query row; in file order within a query.

    offsets: (queries + 1,) int64; rows: (judgments,) int32 document rows; grades: (judgments,) int32.
    A document is relevant from grade `threshold` on.
    """

    offsets: np.ndarray
    rows: np.ndarray
    grades: np.ndarray
    threshold: int = 1

    @classmethod
    def of(cls, query_rows, document_rows, grades, queries: int, threshold: int = 1) -> "Qrels":
        """From judgments in any order, one in each place of the three sequences."""
        query_rows = np.asarray(query_rows, np.int64)
        order = np.argsort(query_rows, kind="stable")
        return cls(
            _offsets(np.bincount(query_rows, minlength=queries)),
            np.asarray(document_rows, np.int32)[order],
            np.asarray(grades, np.int32)[order],
            threshold,
        )

    def judged(self, query_row: int) -> tuple[np.ndarray, np.ndarray]:
        """Document rows and their grades."""
        here = slice(self.offsets[query_row], self.offsets[query_row + 1])
        return self.rows[here], self.grades[here]

    def relevant(self, query_row: int) -> np.ndarray:
        """Document rows."""
        return self.relevant_rows[self.relevant_offsets[query_row] : self.relevant_offsets[query_row + 1]]

    @cached_property
    def relevant_offsets(self) -> np.ndarray:
        """(queries + 1,) int64 into `relevant_rows`."""
        return _offsets(self.grades >= self.threshold)[self.offsets]

    @cached_property
    def relevant_rows(self) -> np.ndarray:
        return self.rows[self.grades >= self.threshold]

    @cached_property
    def relevant_grades(self) -> np.ndarray:
        """Those of `relevant_rows`."""
        return self.grades[self.grades >= self.threshold]

    def subset(self, query_rows: np.ndarray) -> "Qrels":
        """Only these queries, renumbered in the order given."""
        counts = np.diff(self.offsets)[query_rows]
        offsets = _offsets(counts)
        places = np.repeat(self.offsets[query_rows] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Qrels(offsets, self.rows[places], self.grades[places], self.threshold)

    @cached_property
    def digest(self) -> str:
        arrays = (self.offsets.astype("<i8"), self.rows.astype("<i4"), self.grades.astype("<i4"))
        return _sha256([str(self.threshold).encode(), *(array.tobytes() for array in arrays)])


@dataclass(frozen=True, eq=False)
class Split:
    """Queries that each have at least one relevant document; or of which nobody has judged anything."""

    name: str
    queries: Texts
    qrels: Qrels

    @property
    def is_judged(self) -> bool:
        return len(self.qrels.rows) > 0

    def relation(self, anchor: Side) -> Relation:
        """What is relevant to each query; or each document's queries, up to the last document that has one."""
        return self._of_queries if anchor == "query" else self._of_documents

    @cached_property
    def _of_queries(self) -> Relation:
        return Relation(self.qrels.relevant_offsets, self.qrels.relevant_rows, self.qrels.relevant_grades)

    @cached_property
    def _of_documents(self) -> Relation:
        return self._of_queries.inverse()


@dataclass(frozen=True, eq=False)
class Collection:
    """Documents and named splits; `skipped` says what was left out on reading, and how many."""

    documents: Texts
    splits: dict[str, Split]
    skipped: dict[str, int] = field(default_factory=dict)

    def log_skipped(self) -> None:
        """A warning for each thing that was left out."""
        for what, count in self.skipped.items():
            logger.warning("left out: %d %s", count, what)

    def split(self, name: str) -> Split:
        """Raises ValueError for a split that is not there."""
        if name not in self.splits:
            names = ", ".join(self.splits) or "none"
            raise ValueError(f"no split {name!r}; splits: {names}; name one of them, or add it under `data`")
        return self.splits[name]

    @cached_property
    def digest(self) -> str:
        """sha256 over the documents and, by name, every split's queries and judgments."""
        parts = [self.documents.digest]
        for name, split in sorted(self.splits.items()):
            parts += [name, split.queries.digest, split.qrels.digest]
        return _sha256(part.encode() for part in parts)


def _offsets(counts: np.ndarray) -> np.ndarray:
    """Where each of consecutive runs starts, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def add_to_digest(sha, parts: Iterable[bytes]) -> None:
    """Each part with its length before it."""
    for part in parts:
        sha.update(len(part).to_bytes(8, "little") + part)


def _sha256(parts: Iterable[bytes]) -> str:
    sha = hashlib.sha256()
    add_to_digest(sha, parts)
    return sha.hexdigest()
