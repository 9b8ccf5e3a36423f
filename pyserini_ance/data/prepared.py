"""Prepared data: everything that training reads, and its anchor sets: the split seen from either side."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from pyserini_ance.data.collection import SIDES, Collection, Qrels, Side, Split, Texts
from pyserini_ance.data.known_positives import KnownPositives
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.token_store import TokenStore


@dataclass(frozen=True)
class AnchorSet:
    """The anchors of one side, and their positives among the `candidates` rows of the other side.

    Every loss term has an anchor set, and so has every table of negatives. `chunk` restricts the anchors to
    these rows of the queries, or to the documents that are relevant to them. `judged` is the split as its
    judgments are, if pairs were promoted to positives in `split`; else None. `share`, (i, n), restricts the
    anchors to the i-th of n consecutive parts of about the same size: what one process mines for. `drawn`,
    (D,) ascending, are the anchors that steps draw from; None: all.
    """

    split: Split
    anchor: Side
    candidates: int
    chunk: np.ndarray | None = None
    judged: Split | None = None
    share: tuple[int, int] = (0, 1)
    drawn: np.ndarray | None = None

    @classmethod
    def of(cls, collection: Collection, split: str, anchor: Side) -> "AnchorSet":
        """The anchor set of one side of a split. Raises ValueError if the split does not exist."""
        chosen = collection.split(split)
        return cls(chosen, anchor, len(collection.documents if anchor == "query" else chosen.queries))

    def with_positives(self, pairs: np.ndarray) -> "AnchorSet":
        """The same anchor set with more positives, pairs (P, 2) of a query's row and a document's."""
        judged = self.judged or self.split
        return replace(self, split=judged.with_positives(pairs), judged=judged) if len(pairs) else self

    @property
    def candidate(self) -> Side:
        return "document" if self.anchor == "query" else "query"

    @property
    def known_positives(self) -> KnownPositives:
        return self.split.known_positives(self.anchor)

    def pair_keys(self, anchors: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """int64: a number for each pair of an anchor's row and a candidate's, ordered as the pairs are."""
        return anchors.astype(np.int64) * self.candidates + candidates

    @cached_property
    def anchors(self) -> np.ndarray:
        """(A,) int32, ascending: every query that has a positive, or every document that is one."""
        return self._parts[self.share[0]]

    @property
    def first(self) -> int:
        """The position of the share's first anchor among the anchors of all shares."""
        return sum(map(len, self._parts[: self.share[0]]))

    @cached_property
    def _parts(self) -> list[np.ndarray]:
        return np.array_split(self._all_anchors(), self.share[1])

    def _all_anchors(self) -> np.ndarray:
        if self.chunk is None:
            return self.known_positives.anchors
        known_positives = self.split.known_positives("query")
        queries = known_positives.anchors[self.chunk]
        return queries if self.anchor == "query" else np.unique(known_positives.subset(queries).rows)


def merge_splits(collection: Collection, name: str, names: Sequence[str]) -> Collection:
    """Return `collection` with one more split, `name`, that merges the splits `names`.

    With a single name, the collection is returned unchanged. Raises ValueError for a split that does not
    exist, and if a split is called `name` already.
    """
    if len(names) == 1:
        return collection
    if name in collection.splits:
        raise ValueError(
            f"split {name!r} already exists, but {', '.join(names)} take this name when they are merged; "
            f"rename {name!r} under `data`"
        )
    merged = merged_split(name, [collection.split(one) for one in names])
    return replace(collection, splits={**collection.splits, name: merged})


def merged_split(name: str, splits: Sequence[Split]) -> Split:
    """Concatenate the queries of several splits, with the fields that all of them have.

    Ids stay as they are unless two splits share one. In that case every id is prefixed with the name of its
    split (`nq:17`): DPR numbers the questions of every data set from 0.
    """
    ids = [id for split in splits for id in split.queries.ids]
    if len(set(ids)) < len(ids):
        ids = [f"{split.name}:{id}" for split in splits for id in split.queries.ids]
    shared = [
        column
        for column in splits[0].queries.columns
        if all(column in split.queries.columns for split in splits)
    ]
    columns = {
        column: [value for split in splits for value in split.queries.columns[column]] for column in shared
    }
    qrels = [split.qrels for split in splits]
    counts = np.concatenate([np.diff(one.offsets) for one in qrels])
    rows = np.concatenate([one.rows for one in qrels])
    grades = np.concatenate([one.grades for one in qrels])
    query_rows = np.repeat(np.arange(len(counts)), counts)
    merged = Qrels.of(query_rows, rows, grades, len(counts), qrels[0].threshold)
    return Split(name, Texts(ids, columns), merged)


def rows_of_splits(splits: Sequence[Split]) -> tuple[slice, ...]:
    """The range of rows that the queries of each split have in the merged split."""
    ends = np.cumsum([0, *(len(split.queries) for split in splits)]).tolist()
    return tuple(slice(start, end) for start, end in pairwise(ends))


@dataclass(frozen=True)
class PreparedData:
    """A collection, the token ids of all its texts, and the rankings that were made beforehand.

    documents: the token store of the documents, with a row for each passage. queries: a token store for each
    split. train_split: the split that is trained on; it may merge several. tokenization: a digest of how
    texts become tokens. run_files: TREC runs over the training queries, by name (`bm25`). passages: the
    grouping of passages by document; None if every document is its only passage. Empty passages are searched
    and mined from, but not trained on. source_splits: the splits that `train_split` merges, if it merges any.
    positives: the positives of `train_split` that training knows, all or the last of each query.
    blank_documents: (n,) the rows of documents that are encoded as empty texts.
    """

    collection: Collection
    documents: TokenStore
    queries: dict[str, TokenStore]
    train_split: str
    tokenization: str
    run_files: dict[str, Path] = field(default_factory=dict)
    passages: Passages | None = None
    source_splits: tuple[str, ...] = ()
    positives: Literal["all", "last"] = "all"
    blank_documents: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @cached_property
    def split(self) -> Split:
        """The training split, with the positives that training knows."""
        split = self.collection.split(self.train_split)
        return split.with_last_positive() if self.positives == "last" else split

    @cached_property
    def split_rows(self) -> tuple[slice, ...]:
        """Row ranges of the training queries, one per source split."""
        names = self.source_splits or (self.train_split,)
        return rows_of_splits([self.collection.split(name) for name in names])

    @cached_property
    def anchor_sets(self) -> dict[Side, AnchorSet]:
        counts = {"query": len(self.collection.documents), "document": len(self.split.queries)}
        return {side: AnchorSet(self.split, side, counts[side]) for side in SIDES}

    def rows_of(self, documents: np.ndarray) -> tuple[np.ndarray, Passages | None]:
        """The token and vector rows of some documents for a search, and their grouping by document."""
        return self.passages.rows(documents) if self.passages else (documents, None)

    def training_rows_of(self, documents: np.ndarray) -> tuple[np.ndarray, Passages | None]:
        """Like `rows_of`, for the rows that a training step scores: those that are not empty."""
        return self.passages.rows(documents, filled=True) if self.passages else (documents, None)

    @property
    def identity(self) -> dict[str, str]:
        """The inputs, besides weights, that tables of negatives depend on."""
        return {"collection": self.collection.digest, "tokenization": self.tokenization}
