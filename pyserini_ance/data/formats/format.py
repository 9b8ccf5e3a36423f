"""The base class of all formats: it checks what an adapter reads and builds a Collection from it."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import batched
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.formats.builder import build_texts, is_empty
from pyserini_ance.data.formats.lines import files_in, find_file, shown
from pyserini_ance.data.formats.records import Entry
from pyserini_ance.data.made_splits import DocumentQueries, cut_dev
from pyserini_ance.data.trec import Judgment, two_grades
from pyserini_ance.recipe.components import Component, Settings
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
    """

    official: dict[str, PositiveInt | str] = {}  # noqa: RUF012  pydantic copies defaults
    """What is published about these files; it does not affect what is read. Counts that the read data is
    compared with: `documents`, and for each split `SPLIT queries`, `SPLIT used` (queries with a relevant
    document) and `SPLIT judgments`; and by the name of a file its address, or the archive that contains it,
    and its description."""
    relevance_threshold: int = Field(1, ge=1)
    """The lowest grade that counts as relevant in training."""
    ignore_identical_ids: bool = False
    """Leave the document with the id of a query out of its rankings, and never take it as a negative, as BEIR
    does: queries of ArguAna and Quora are documents."""
    instruction: str | None = None
    """What a query asks of this collection, for encoders whose `tokenization.query.template` has
    `{instruction}`, such as "Given a question about health, retrieve pages that answer it"."""
    # Whether the data is identified by names whose content never changes, so that it need not be read again.
    by_name: ClassVar[bool] = False
    skip: tuple[Literal["unknown_ids", "empty_documents"], ...] = ()
    """What is skipped and counted, and otherwise an error: judgments of ids that the collection lacks
    (`unknown_ids`), and documents without text with their judgments (`empty_documents`)."""
    train_queries: DocumentQueries | None = None
    """Training queries made from the documents, in place of the split `train`, or as a split of another name;
    null: none."""
    hold_out: PositiveInt | None = None
    """How many judged queries are cut from the split `train` and become the split `dev`, for data without
    one, or a few less: queries with the same text or relevant document (of several one counts) stay
    together; null: none."""

    @model_validator(mode="after")
    def _check_names_of_splits(self) -> Self:
        for name in self.split_names:
            check_split_name(name)
        return self

    @property
    def _made(self) -> list[str]:
        """The splits that are not read: made from the documents, or cut from another split."""
        made = [self.train_queries.split] if self.train_queries else []
        return [*made, "dev"] if self.hold_out else made

    @property
    def split_names(self) -> list[str]:
        """The splits that the settings define; none for an adapter that reads splits without a setting."""
        return list(dict.fromkeys([*getattr(self, "splits", {}), *self._made]))

    def published(self, what: str, split: str = "") -> int | None:
        """A published count; None of a split that is made here, or that another is cut from."""
        count = self.official.get(f"{split} {what}".strip())
        is_other = split in self._made or (self.hold_out and split == "train")
        return count if isinstance(count, int) and not is_other else None

    def of_splits(self, names: Iterable[str]) -> Self:
        """The same data with these splits only; the files of other splits are not read and need not exist.

        A split that is made is not read from files; `train` is read if `dev` is cut from it. An adapter
        without a `splits` setting reads all its splits. Raises ValueError for a split that `data` does not
        define.
        """
        splits = getattr(self, "splits", None)
        if splits is None:
            return self
        selected = set(names)
        if unknown := sorted(selected.difference(self.split_names)):
            cure = "use one of them, or add it under `data`"
            raise ValueError(f"no split {unknown[0]!r}; splits: {', '.join(self.split_names)}; {cure}")
        made = self.train_queries
        is_cut = self.hold_out is not None and not selected.isdisjoint({"train", "dev"})
        if is_cut:
            selected.add("train")
        return self.model_copy(
            update={
                "splits": {n: s for n, s in splits.items() if n in selected and n not in self._made},
                "train_queries": made if made and made.split in selected else None,
                "hold_out": self.hold_out if is_cut else None,
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
        return _paths_in(self, "data")

    @property
    def shows_changes(self) -> bool:
        """Whether `files` are all that is read, or never change; otherwise data is read each time."""
        return self.by_name or bool(self.files())

    def input_files(self) -> list[Path]:
        """The files that `files` lists, as they exist on disk: plain or .gz; for a folder, all in it.

        Raises FileNotFoundError that lists every missing file and its published source.
        """
        files: list[Path] = []
        missing: list[str] = []
        for key, path in self.files():
            try:
                if (folder := path.expanduser()).is_dir():
                    files += files_in(folder)
                else:
                    files.append(find_file(path, key))
            except FileNotFoundError:
                source = self.official.get(path.name.removesuffix(".gz"))
                missing.append(f"  {key}: {path}" + (f"\n    {source}" if source else ""))
        if missing:
            raise FileNotFoundError(
                f"{len(missing)} of {len(self.files())} files of the recipe do not exist, plain or as .gz:\n"
                + "\n".join(missing)
                + "\nput them there, or set their paths, with KEY=PATH on the command line (relative paths "
                f"start at the working directory, now {Path.cwd()}); data.splits.NAME=null leaves a split "
                "out, and data.hold_out=200 cuts a dev split from the training queries"
            )
        return files

    def read(
        self,
        path: Path | None = None,
        trained_on: AbstractSet[str] = frozenset(),
        keep_unjudged: bool = False,
    ) -> Collection:
        """Read and check the collection: all documents, and the queries and judgments of each split.

        path: a new file that documents are written to as they are read and memory-mapped from, so that few of
        them are in memory at a time; None keeps them in memory. trained_on: splits on which nothing is
        measured; they leave out judged queries without a relevant document, which count as 0 in others, or,
        with keep_unjudged, keep all queries.

        Raises ValueError for a repeated id, a text that is empty or holds a NUL, a judgment of an unknown id,
        two grades for one pair, a split without usable queries or without judgments and answers, documents
        that `train_queries` makes no query from, and a split that has too few queries for `hold_out`.
        """
        data = self.of_splits(self.split_names) if self._made else self
        documents, splits = data.raw_data()
        left_out: set[str] = set()
        if "empty_documents" in self.skip:
            documents = _with_text(documents, left_out)
        corpus = build_texts(documents, "document", path)
        if not len(corpus):
            files = [str(file) for _, file in self.files()] or [f"data of kind {self.kind}"]
            read = ", ".join(files[:3]) + f" and {len(files) - 3:,} more" * (len(files) > 3)
            expected = "expected at least one with a text; add documents, or pass other data"
            raise ValueError(f"{read}: no document was read; {expected}")
        skipped = Counter({DOCUMENTS: len(left_out)})
        needed = dict.fromkeys(trained_on, None if keep_unjudged else "positives")
        checked = {
            name: self._split(name, corpus, entries, judged, left_out, skipped, needed.get(name, "judgments"))
            for name, (entries, judged) in splits.items()
            if name not in self._made
        }
        if self.train_queries:
            made = self.train_queries.make_split(corpus, self.relevance_threshold, skipped)
            checked = {made.name: made, **checked}
        if self.hold_out:
            checked = cut_dev(checked, self.hold_out, corpus)
        collection = Collection(corpus, checked, {**+skipped}, frozenset(left_out), self.ignore_identical_ids)
        collection.log_skipped()
        return collection

    def _split(
        self,
        name: str,
        documents: Texts,
        entries: Iterable[Entry],
        judgments: Iterable[Judgment] | None,
        left_out: set[str],
        skipped: Counter[str],
        needed: str | None,
    ) -> Split:
        """The split with the queries that have what is `needed`: positives, or judgments; None: all."""
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
        if needed is None:
            return Split(name, queries, qrels)
        rows = with_positives if needed == "positives" else np.flatnonzero(np.diff(qrels.offsets))
        used = qrels.subset(rows)
        skipped[f"{name} queries without {needed}"] = len(queries) - len(rows)
        skipped[f"{name} judgments of queries without {needed}"] = len(qrels.rows) - len(used.rows)
        return Split(name, queries.subset(rows), used)

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
        if unknown and "unknown_ids" not in self.skip:
            raise ValueError(
                f"{skipped[f'{name} judgments of unknown ids']} judgments of split {name!r} refer to a query "
                f"or a document that does not exist; the first: {'; '.join(unknown)}; the "
                f"first ids of queries are {shown(queries.ids[:SHOWN])}, of documents "
                f"{shown(documents.ids[:SHOWN])}; correct the ids (a number has no leading zeros), add what "
                "is missing, or skip such judgments: unknown_ids in data.skip"
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


def _with_text(documents: Iterable[Entry], left_out: set[str]) -> Iterator[Entry]:
    """Iterate over the documents that are not empty; `left_out` receives the ids of the others."""
    for document in documents:
        if is_empty(document):
            left_out.add(document.id)
        else:
            yield document


def _paths_in(settings: Any, key: str) -> list[tuple[str, Path]]:
    """Every path in the settings under `key`, with its own key."""
    if isinstance(settings, Path):
        return [(key, settings)]
    inner = dict(settings) if isinstance(settings, Settings | Mapping) else {}
    return [pair for name, value in inner.items() for pair in _paths_in(value, f"{key}.{name}")]
