"""The collection: documents, and splits of queries with their relevance judgments and known positives.

Rows are contiguous ints in file order. String ids stay exactly as they were read. Strings are either in
memory or memory-mapped from the cache (`collection_cache.py`).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from pyserini_ance.data.known_positives import PLURALS as PLURALS
from pyserini_ance.data.known_positives import SIDES as SIDES
from pyserini_ance.data.known_positives import KnownPositives, offsets_of, selected
from pyserini_ance.data.known_positives import Side as Side
from pyserini_ance.data.texts import Texts as Texts
from pyserini_ance.data.texts import sha256_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Qrels:
    """The judged documents of every query in compressed sparse row form, in file order within a query.

    offsets: (queries + 1,) int64; rows: (judgments,) int32 document rows; grades: (judgments,) int32.
    A document is relevant if its grade is at least `threshold`.
    """

    offsets: np.ndarray
    rows: np.ndarray
    grades: np.ndarray
    threshold: int = 1

    def __repr__(self) -> str:
        return f"Qrels({len(self.offsets) - 1:,} queries, {len(self.rows):,} judgments)"

    @classmethod
    def of(
        cls,
        query_rows: Sequence[int] | np.ndarray,
        document_rows: Sequence[int] | np.ndarray,
        grades: Sequence[int] | np.ndarray,
        queries: int,
        threshold: int = 1,
    ) -> "Qrels":
        """Build qrels from parallel sequences of judgments, which may be in any order."""
        query_rows = np.asarray(query_rows, np.int64)
        order = np.argsort(query_rows, kind="stable")
        return cls(
            offsets_of(np.bincount(query_rows, minlength=queries)),
            np.asarray(document_rows, np.int32)[order],
            np.asarray(grades, np.int32)[order],
            threshold,
        )

    def judged(self, query_row: int) -> tuple[np.ndarray, np.ndarray]:
        """The judged documents of a query: their rows and their grades."""
        judgments = slice(self.offsets[query_row], self.offsets[query_row + 1])
        return self.rows[judgments], self.grades[judgments]

    def relevant(self, query_row: int) -> np.ndarray:
        return self.positives.of(query_row)

    @cached_property
    def positives(self) -> KnownPositives:
        """The relevant documents of each query."""
        is_relevant = self.grades >= self.threshold
        offsets = offsets_of(is_relevant)[self.offsets]
        return KnownPositives(offsets, self.rows[is_relevant], self.grades[is_relevant])

    def subset(self, query_rows: np.ndarray) -> "Qrels":
        """Select these queries and renumber them in the order given."""
        offsets, positions = selected(self.offsets, query_rows)
        return Qrels(offsets, self.rows[positions], self.grades[positions], self.threshold)

    @cached_property
    def digest(self) -> str:
        """sha256 over the threshold and the three arrays."""
        arrays = (self.offsets.astype("<i8"), self.rows.astype("<i4"), self.grades.astype("<i4"))
        return sha256_of([str(self.threshold).encode(), *(array.tobytes() for array in arrays)]).hexdigest()


@dataclass(frozen=True, eq=False)
class Split:
    """A named set of queries.

    A split that is measured on has all judged queries; one that is only trained on those with a relevant
    document, or with `refresh.positives_top_k` all. A split without judgments has all its queries.
    """

    name: str
    queries: Texts
    qrels: Qrels

    def __repr__(self) -> str:
        return f"Split({self.name!r}: {len(self.queries):,} queries, {len(self.qrels.rows):,} judgments)"

    @property
    def is_judged(self) -> bool:
        return len(self.qrels.rows) > 0

    def with_positives(self, pairs: np.ndarray) -> "Split":
        """The same queries, with more relevant documents: `pairs` (P, 2) of a query's row and a document's.

        They come after the judged ones of their query, with the lowest grade that is relevant.
        """
        qrels, queries = self.qrels, len(self.qrels.offsets) - 1
        query_rows = np.concatenate([np.repeat(np.arange(queries), np.diff(qrels.offsets)), pairs[:, 0]])
        grades = np.concatenate([qrels.grades, np.full(len(pairs), qrels.threshold)])
        rows = np.concatenate([qrels.rows, pairs[:, 1]])
        return replace(self, qrels=Qrels.of(query_rows, rows, grades, queries, qrels.threshold))

    def with_last_positive(self) -> "Split":
        """The same queries, each with the last of its relevant documents alone."""
        positives = self.qrels.positives
        last = positives.offsets[1:][positives.anchors] - 1
        offsets = offsets_of(np.minimum(positives.counts, 1))
        qrels = Qrels(offsets, positives.rows[last], positives.grades[last], self.qrels.threshold)
        return replace(self, qrels=qrels)

    def known_positives(self, anchor: Side) -> KnownPositives:
        """The relevant documents of each query, or the queries of each document.

        The second relation ends with the last document that is relevant to a query.
        """
        return self.qrels.positives if anchor == "query" else self.qrels.positives.inverse


@dataclass(frozen=True, eq=False)
class Collection:
    """Documents and named splits.

    `skipped` counts what was skipped when the files were read, by description. `left_out` has the ids of
    documents without text, which the files of rankings may name. With `ignore_identical_ids`, rankings leave
    out the document with the id of the query.
    """

    documents: Texts
    splits: dict[str, Split]
    skipped: dict[str, int] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    ignore_identical_ids: bool = False
    _own_documents: dict[str, np.ndarray] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        splits = "".join(f", {name}: {len(split.queries):,} queries" for name, split in self.splits.items())
        return f"Collection({len(self.documents):,} documents{splits})"

    def log_skipped(self) -> None:
        for description, count in self.skipped.items():
            logger.warning("skipped: %d %s", count, description)

    def split(self, name: str) -> Split:
        """The split of this name. Raises ValueError if it does not exist."""
        if name not in self.splits:
            names = ", ".join(self.splits) or "none"
            raise ValueError(f"no split {name!r}; splits: {names}; use one of them, or add it under `data`")
        return self.splits[name]

    def own_documents(self, split: Split, rows: np.ndarray | slice = slice(None)) -> np.ndarray | None:
        """(Q,) int32: the document with the id of each of the queries `rows`, or PADDING.

        Their rankings leave it out; None if they leave out none.
        """
        if not self.ignore_identical_ids:
            return None
        if split.name not in self._own_documents:
            # Merged splits may prefix ids with the names of their parts.
            parts = [self.splits.get(name) for name in split.name.split("+")]
            queries = [part.queries for part in parts if part] if all(parts) else [split.queries]
            found = [self.documents.rows_of(of_part.ids) for of_part in queries]
            self._own_documents[split.name] = np.concatenate(found).astype(np.int32)
        return self._own_documents[split.name][rows]

    def judgments(self, split: str) -> dict[str, dict[str, int]]:
        """The grades of a split's judgments by the ids of query and document, as `evaluate` takes them.

        Raises ValueError if the split does not exist.
        """
        chosen, ids = self.split(split), self.documents.ids
        judged = map(chosen.qrels.judged, range(len(chosen.queries)))
        return {
            query: {ids[row]: grade for row, grade in zip(rows.tolist(), grades.tolist(), strict=True)}
            for query, (rows, grades) in zip(chosen.queries.ids, judged, strict=True)
        }

    def to_beir(self, folder: str | Path) -> None:
        """Write BEIR's files, which a recipe reads: `data: {kind: beir, folder: FOLDER}`.

        The folder appears when it is complete. Raises FileExistsError if it is not empty, ValueError for a
        split without judgments.
        """
        from pyserini_ance.data.collection_files import write_beir  # imports this module
        from pyserini_ance.storage.publish import whole_folder

        if unjudged := [name for name, split in self.splits.items() if not split.is_judged]:
            raise ValueError(f"split {unjudged[0]!r} has no judgments, which BEIR's files need; add them")
        with whole_folder(Path(folder)) as temporary:
            write_beir(self, temporary)

    @cached_property
    def digest(self) -> str:
        """sha256 over documents, queries and judgments of every split, sorted by name, and `left_out`."""
        digests = [self.documents.digest]
        for name, split in sorted(self.splits.items()):
            digests += [name, split.queries.digest, split.qrels.digest]
        if self.left_out:
            digests += ["left out", *sorted(self.left_out)]
        if self.ignore_identical_ids:
            digests.append("ignore identical ids")
        return sha256_of(digest.encode(errors="surrogatepass") for digest in digests).hexdigest()
