"""The base class of all formats: it checks what an adapter reads and builds a Collection from it."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import batched
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.document_queries import DocumentQueries
from pyserini_ance.data.formats.builder import Entry, build_texts, is_empty
from pyserini_ance.data.formats.files import Official, SplitCounts, paths_in
from pyserini_ance.data.formats.lines import shown
from pyserini_ance.data.hold_out import HoldOut
from pyserini_ance.data.trec import Judgment, two_grades
from pyserini_ance.recipe.components import Component
from pyserini_ance.recipe.splits import check_split_name

DOCUMENTS = "documents without text"
SHOWN = 5
JUDGMENTS_PER_BLOCK = 1 << 18  # of 400 bytes each; finding the rows of a block reads all ids once


class RawData(NamedTuple):
    """The output of an adapter: documents, and the queries and judgments of each split.

    Each iterable is consumed once, in this order. A split without judgments (None) keeps all its queries,
    which must have answers.
    """

    documents: Iterable[Entry]
    splits: Mapping[str, tuple[Iterable[Entry], Iterable[Judgment] | None]]


class Format(Component):
    """Files of one layout.

    An adapter implements `raw_data`; this class checks the data and builds the collection.

    `official` holds what is published about these files; it does not affect what is read.
    """

    official: Official = Official()
    """Published counts and files of the data, which the read data is compared with."""
    relevance_threshold: int = Field(1, ge=1)
    """The lowest grade that counts as relevant in training."""
    # Whether the data is identified by names whose content never changes, so that it need not be read again.
    by_name: ClassVar[bool] = False
    unknown_ids: Literal["refuse", "skip"] = "refuse"
    """Judgments of ids that the collection lacks are an error (`refuse`) or ignored (`skip`)."""
    empty_documents: Literal["refuse", "skip"] = "refuse"
    """Documents without text are an error (`refuse`), or left out with their judgments (`skip`)."""
    keep_unjudged: tuple[str, ...] = ()
    """Training splits that keep queries without a relevant document, for `refresh: {positives_top_k: N}`; in
    all others they are left out."""
    train_queries: DocumentQueries | None = None
    """Training queries made from the documents, in place of the data's own; null: those of the data."""
    hold_out: HoldOut | None = None
    """A dev split that is cut from the training queries, for data without one; null: none is cut."""

    @model_validator(mode="after")
    def _check_names_of_splits(self) -> Self:
        for name in self.split_names:
            check_split_name(name)
        if self.train_queries and self.hold_out and self.train_queries.split == self.hold_out.split:
            raise ValueError(
                f"train_queries and hold_out both make split {self.hold_out.split!r}; rename one of them: "
                "hold_out.split or train_queries.split"
            )
        return self

    @property
    def _made_splits(self) -> set[str]:
        """The splits that are not read: made from the documents, or cut from another split."""
        return {made.split for made in (self.train_queries, self.hold_out) if made}

    @property
    def split_names(self) -> list[str]:
        """The splits that the settings define; none for an adapter that reads splits without a setting."""
        made = [made.split for made in (self.train_queries, self.hold_out) if made]
        return list(dict.fromkeys([*getattr(self, "splits", {}), *made]))

    def published_counts(self, split: str) -> SplitCounts:
        """The published counts of a split; none for one that is made here, or that another is cut from."""
        cut = {self.hold_out.source} if self.hold_out else set()
        is_other = split in self._made_splits | cut
        return SplitCounts() if is_other else self.official.splits.get(split, SplitCounts())

    def of_splits(self, names: Iterable[str]) -> Self:
        """The same data with these splits only; the files of other splits are not read and need not exist.

        A split that is made is not read from files; one that a selected split is cut from is read. An adapter
        without a `splits` setting reads all its splits. Raises ValueError for a split that `data` does not
        define.
        """
        splits = getattr(self, "splits", None)
        if splits is None:
            return self
        selected = set(names)
        if unknown := sorted(selected.difference(self.split_names)):
            raise ValueError(
                f"no split {unknown[0]!r}; splits: {', '.join(self.split_names)}; "
                "use one of them, or add it under `data`"
            )
        queries, hold_out = self.train_queries, self.hold_out
        if hold_out and selected & {hold_out.source, hold_out.split}:
            selected.add(hold_out.source)
        else:
            hold_out = None
        return self.model_copy(
            update={
                "splits": {n: s for n, s in splits.items() if n in selected and n not in self._made_splits},
                "train_queries": queries if queries and queries.split in selected else None,
                "hold_out": hold_out,
            }
        )

    def raw_data(self) -> RawData:
        """The content of the files, unchecked. Every adapter implements this."""
        raise NotImplementedError(f"{type(self).__name__}.raw_data")

    def files(self) -> list[tuple[str, Path]]:
        """The files and folders that are read, with their recipe keys and the paths in the recipe.

        The list is empty for a format that reads something other than files; changes of its data are not
        detected.
        """
        return paths_in(self, "data")

    def read(
        self, path: Path | None = None, check: Callable[[Iterable[str]], None] = lambda fields: None
    ) -> Collection:
        """Read and check the collection: all documents, and the queries and judgments of each split.

        path: a new file that documents are written to as they are read and memory-mapped from, so that few of
        them are in memory at a time; None keeps them in memory. check: called with the names of the
        documents' fields once the first document is read.

        Raises ValueError for a repeated id, a text that is empty or holds a NUL, a judgment of an unknown id,
        two grades for one pair, a split without usable queries or without judgments and answers, documents
        that `train_queries` makes no query from, and a split that has too few queries for `hold_out`.
        """
        data = self.of_splits(self.split_names) if self._made_splits else self
        documents, splits = data.raw_data()
        left_out: set[str] = set()
        corpus = build_texts(self._with_text(documents, check, left_out), "document", path)
        if not len(corpus):
            read = ", ".join(str(file) for _, file in self.files()) or f"data of kind {self.kind}"
            expected = "expected at least one with a text; add documents, or pass other data"
            raise ValueError(f"{read}: no document was read; {expected}")
        skipped = Counter({DOCUMENTS: len(left_out)})
        checked = {
            name: self._split(name, corpus, entries, judgments, left_out, skipped)
            for name, (entries, judgments) in splits.items()
            if name not in self._made_splits
        }
        if self.train_queries:
            made = self.train_queries.make_split(corpus, self.relevance_threshold, skipped)
            checked = {made.name: made, **checked}
        if self.hold_out:
            checked = self.hold_out.cut(checked)
        collection = Collection(corpus, checked, {**+skipped}, frozenset(left_out))
        collection.log_skipped()
        return collection

    def _with_text(
        self, documents: Iterable[Entry], check: Callable[[Iterable[str]], None], left_out: set[str]
    ) -> Iterator[Entry]:
        """Iterate over the documents; if empty ones are skipped, `left_out` receives their ids."""
        for index, document in enumerate(documents):
            if index == 0:
                check(document.fields)
            if self.empty_documents == "skip" and is_empty(document):
                left_out.add(document.id)
            else:
                yield document

    def _split(
        self,
        name: str,
        documents: Texts,
        entries: Iterable[Entry],
        judgments: Iterable[Judgment] | None,
        left_out: set[str],
        skipped: Counter[str],
    ) -> Split:
        queries = read_queries(entries)
        if judgments is None:  # passages are judged by the answers that they contain
            if ANSWERS not in queries.columns:
                raise ValueError(
                    f"split {name!r} has neither `qrels` nor questions with answers; "
                    f"expected one of the two; add it under data.splits.{name}"
                )
            return Split(name, queries, Qrels.of([], [], [], len(queries), self.relevance_threshold))
        qrels = self._qrels(name, queries, documents, judgments, left_out, skipped)
        with_positives = qrels.positives.anchors
        if not len(with_positives):
            files = [str(path) for key, path in self.files() if f"{key}.".startswith(f"data.splits.{name}.")]
            lowest = self.relevance_threshold
            highest = f", the highest grade is {qrels.grades.max()}" if len(qrels.grades) else ""
            raise ValueError(
                f"split {name!r} has no query with a relevant document: {len(queries)} queries and "
                f"{len(qrels.rows)} judgments were read{highest}; expected a grade of at least {lowest} "
                f"(relevance_threshold={lowest}); correct the split"
                + (f": {', '.join(files)}" if files else "")
            )
        if name in self.keep_unjudged:
            return Split(name, queries, qrels)
        used = qrels.subset(with_positives)
        skipped[f"{name} queries without positives"] = len(queries) - len(with_positives)
        skipped[f"{name} judgments of queries without positives"] = len(qrels.rows) - len(used.rows)
        return Split(name, queries.subset(with_positives), used)

    def _qrels(
        self,
        name: str,
        queries: Texts,
        documents: Texts,
        judgments: Iterable[Judgment],
        left_out: set[str],
        skipped: Counter[str],
    ) -> Qrels:
        positions: dict[int, int] = {}  # the index of each pair, which is encoded as one number
        grades, numbers = array("i"), array("q")
        unknown: list[str] = []  # the first
        for block in batched(judgments, JUDGMENTS_PER_BLOCK):
            query_rows = queries.rows_of(judgment.query for judgment in block).tolist()
            document_rows = documents.rows_of(judgment.document for judgment in block).tolist()
            for judgment, query, document in zip(block, query_rows, document_rows, strict=True):
                if document < 0 and judgment.document in left_out:
                    skipped[f"{name} judgments of {DOCUMENTS}"] += 1
                elif query < 0 or document < 0:
                    skipped[f"{name} judgments of unknown ids"] += 1
                    if len(unknown) < SHOWN:
                        query_id = f" query {shown(judgment.query)}" * (query < 0)
                        document_id = f" document {shown(judgment.document)}" * (document < 0)
                        unknown.append(f"{judgment.line.place}:{query_id}{document_id}")
                elif (pair := query * len(documents) + document) not in positions:
                    positions[pair] = len(positions)
                    grades.append(judgment.grade)
                    numbers.append(judgment.line.number)
                elif grades[position := positions[pair]] != judgment.grade:
                    raise two_grades(judgment, grades[position], numbers[position])
        if unknown and self.unknown_ids == "refuse":
            raise ValueError(
                f"{skipped[f'{name} judgments of unknown ids']} judgments of split {name!r} refer to a query "
                f"or a document that does not exist; the first: {'; '.join(unknown)}; the queries are "
                f"{shown(queries.ids[:SHOWN])}, the documents {shown(documents.ids[:SHOWN])}; correct the "
                "ids (a number has no leading zeros), add what is missing, or skip such judgments with "
                "unknown_ids=skip"
            )
        pairs = np.fromiter(positions, np.int64, len(positions))
        return Qrels.of(
            *np.divmod(pairs, len(documents)), np.asarray(grades), len(queries), self.relevance_threshold
        )


def read_queries(entries: Iterable[Entry]) -> Texts:
    """Read and check queries, judged or not. Raises ValueError as `Format.read` does."""
    # Pyserini's topic files have one query per line. A query that did not fit there would be ranked
    # differently.
    on_one_line = (
        entry._replace(fields={name: " ".join(value.split()) for name, value in entry.fields.items()})
        for entry in entries
    )
    return build_texts(on_one_line, "query")
