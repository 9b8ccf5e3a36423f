"""Prepared data: everything that training reads, and its anchor sets: the split seen from either side."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import SIDES, Collection, Qrels, Side, Split, Texts
from pyserini_ance.data.known_positives import PADDING, KnownPositives, is_known_positive, offsets_of
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.texts import SameTexts
from pyserini_ance.data.token_store import TokenStore


@dataclass(frozen=True)
class AnchorSet:
    """The anchors of one side, and their positives among the `candidates` rows of the other side.

    Every loss term has an anchor set, and so has every table of negatives. `chunk` restricts the anchors to
    these rows of the queries, or to the documents that are relevant to them. `judged` is the split as its
    judgments are, if pairs were promoted to positives in `split`; else None. `share`, (i, n), restricts the
    anchors to the i-th of n consecutive parts of about the same size: what one process mines for. `drawn`,
    (D,) ascending, are the anchors that steps draw from; None: all. `same` are the texts of each side that
    occur several times; `own`, (Q,), is the document that each query's rankings leave out, or PADDING.
    """

    split: Split
    anchor: Side
    candidates: int
    chunk: np.ndarray | None = None
    judged: Split | None = None
    share: tuple[int, int] = (0, 1)
    drawn: np.ndarray | None = None
    same: dict[Side, SameTexts] = field(default_factory=dict)
    own: np.ndarray | None = None

    @classmethod
    def of(cls, collection: Collection, split: Split, anchor: Side) -> "AnchorSet":
        texts = {"query": split.queries, "document": collection.documents}
        candidates = len(texts["document" if anchor == "query" else "query"])
        same, own = {side: texts[side].same for side in SIDES}, collection.own_documents(split)
        return cls(split, anchor, candidates, same=same, own=own)

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

    def never_negative(
        self, anchors: np.ndarray, candidates: np.ndarray, known: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, n) bool: whether candidates[i, j] (B, n) is no negative of anchors[i], judged or not.

        These are the known positives of the anchor and of all anchors with its text, every candidate with the
        text of one of them, and the query's `own` document. known: which candidates are known positives, if
        the caller has asked.
        """
        never = known
        if never is None or self.by_text is not self.known_positives:
            firsts = self.first_of(self.anchor, anchors), self.first_of(self.candidate, candidates)
            never = is_known_positive(self.by_text, *firsts)
        if self.own is None:
            return never
        queries, documents = anchors[:, None], candidates
        if self.anchor == "document":
            queries, documents = documents, queries
        return never | ((self.own[queries] == documents) & (candidates != PADDING))

    @cached_property
    def most_excluded(self) -> tuple[int, int]:
        """An anchor with the most candidates that are never its negatives, and their number."""
        by_text, counts = self.by_text, self.by_text.counts
        if by_text is not self.known_positives:
            copies = self.same[self.candidate].counts(by_text.rows)
            counts = np.bincount(np.repeat(np.arange(len(counts)), counts), copies)
        row = int(counts.argmax())
        return row, int(counts[row]) + (self.own is not None)

    def first_of(self, side: Side, rows: np.ndarray) -> np.ndarray:
        """The first row with the text of each of `rows` of a side, of any shape."""
        return self.same[side].first_of(rows) if side in self.same else rows

    @cached_property
    def by_text(self) -> KnownPositives:
        """The known positives, with the first row of a text in place of all rows that have it, on both sides.

        Listing all copies instead could take the square of their number.
        """
        known = self.known_positives
        if not any(map(len, self.same.values())):
            return known
        anchors = np.repeat(np.arange(len(known.counts)), known.counts)
        first_anchors = self.first_of(self.anchor, anchors)
        keys = np.unique(self.pair_keys(first_anchors, self.first_of(self.candidate, known.rows)))
        first_anchors, first_rows = np.divmod(keys, self.candidates)
        offsets = offsets_of(np.bincount(first_anchors, minlength=len(known.counts)))
        return KnownPositives(offsets, first_rows.astype(np.int32), np.zeros(len(keys), np.int32))

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
        anchors = self.known_positives.anchors
        if self.chunk is not None:
            of_queries = self.split.known_positives("query")
            anchors = np.intersect1d(of_queries.anchors, self.chunk).astype(anchors.dtype)
            if self.anchor == "document":
                anchors = np.unique(of_queries.subset(anchors).rows)
        return np.array_split(anchors, self.share[1])


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
    columns = {name: [one for split in splits for one in split.queries.columns[name]] for name in shared}
    qrels = [split.qrels for split in splits]
    counts = np.concatenate([np.diff(one.offsets) for one in qrels])
    rows = np.concatenate([one.rows for one in qrels])
    grades = np.concatenate([one.grades for one in qrels])
    return Split(name, Texts(ids, columns), Qrels(offsets_of(counts), rows, grades, qrels[0].threshold))


@dataclass(frozen=True)
class PreparedData:
    """A collection, the token ids of all its texts, and the rankings that were made beforehand.

    documents: the token store of the documents, with a row for each passage. queries: a token store for each
    split. train_split: the split that is trained on; it may merge several. tokenization: a digest of how
    texts become tokens. training_rankings: TREC runs over the training queries, by name (`bm25`). passages:
    the grouping of passages by document; None if every document is its only passage. Empty passages are
    searched and mined from, but not trained on. source_splits: the splits that `train_split` merges, if any.
    last_positive_alone: whether training knows only the last positive of each query of `train_split`.
    blank_documents: (n,) the rows of documents that are encoded as empty texts.
    """

    collection: Collection
    documents: TokenStore
    queries: dict[str, TokenStore]
    train_split: str
    tokenization: str
    training_rankings: dict[str, Path] = field(default_factory=dict)
    passages: Passages | None = None
    source_splits: tuple[str, ...] = ()
    last_positive_alone: bool = False
    blank_documents: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @cached_property
    def split(self) -> Split:
        """The training split, with the positives that training knows."""
        split = self.collection.split(self.train_split)
        return split.with_last_positive() if self.last_positive_alone else split

    @cached_property
    def split_rows(self) -> tuple[slice, ...]:
        """Row ranges of the training queries, one per source split."""
        names = self.source_splits or (self.train_split,)
        sizes = (len(self.collection.split(name).queries) for name in names)
        return tuple(slice(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))

    def rows_of_splits(self, names: Sequence[str] | None) -> np.ndarray:
        """(n,) ascending: the rows of the training queries that are of these source splits; None: of all."""
        of_split = dict(zip(self.source_splits or (self.train_split,), self.split_rows, strict=True))
        rows = np.arange(len(self.split.queries))
        return rows if names is None else np.sort(np.concatenate([rows[of_split[name]] for name in names]))

    @cached_property
    def anchor_sets(self) -> dict[Side, AnchorSet]:
        return {side: AnchorSet.of(self.collection, self.split, side) for side in SIDES}

    def training_rows_of(self, documents: np.ndarray) -> tuple[np.ndarray, Passages | None]:
        """The token and vector rows of some documents that a training step scores, and their grouping by
        document: those that are not empty."""
        return self.passages.rows(documents, filled=True) if self.passages else (documents, None)

    @property
    def identity(self) -> dict[str, str]:
        """The inputs, besides weights, that tables of negatives depend on."""
        return {"collection": self.collection.digest, "tokenization": self.tokenization}
