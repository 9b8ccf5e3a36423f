"""The base class of all formats: it checks what an adapter reads and builds a Collection from it."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, PositiveInt

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.document_queries import DocumentQueries
from pyserini_ance.data.formats.builder import Entry, InMemory, Judgment, OnDisk, build_texts
from pyserini_ance.data.formats.lines import SHOWN_CHARACTERS, find_file, shown
from pyserini_ance.recipe.components import Component, Settings

UNKNOWN_SHOWN = 5


class OfficialFile(Settings):
    """A published file: `what` describes it, and `at` is its address or the archive that contains it."""

    what: str
    """A description of the file."""
    at: str
    """Its address, or the archive that contains it."""


class SplitCounts(Settings):
    """Published counts of a split: queries, queries with a relevant document (`used`), and judgments.

    None: the count is not published, or sources disagree.
    """

    queries: PositiveInt | None = None
    """Published number of queries; null: not published, or sources disagree."""
    used: PositiveInt | None = None
    """Published number of queries with a relevant document."""
    judgments: PositiveInt | None = None
    """Published number of judgments."""


class Official(Settings):
    """Published facts about a data set: counts to compare the read data with, and files by name.

    The recipe's files may be in any folder.
    """

    documents: PositiveInt | None = None
    """Published number of documents."""
    splits: dict[str, SplitCounts] = {}  # noqa: RUF012  pydantic copies defaults
    """Published counts by split."""
    files: dict[str, OfficialFile] = {}  # noqa: RUF012
    """Published files by name."""

    def of(self, path: Path) -> OfficialFile | None:
        """The published file with the name of `path`, plain or .gz."""
        return self.files.get(path.name.removesuffix(".gz"))


def input_files(data: "Format") -> list[Path]:
    """The files that `data.files` lists, as they exist on disk: plain or .gz; for a folder, all its files.

    Raises FileNotFoundError that lists every missing file and its published source.
    """
    files: list[Path] = []
    missing = []
    for key, path in data.files():
        folder = path.expanduser()
        try:
            files += (
                sorted(one for one in folder.iterdir() if one.is_file())
                if folder.is_dir()
                else [find_file(path, key)]
            )
        except FileNotFoundError:
            missing.append(_describe(key, path, data.official.of(path)))
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of {len(data.files())} files of the recipe do not exist, "
            + "neither plain nor as .gz:\n"
            + "\n".join(missing)
            + "\nput them there, or set their paths with KEY=PATH "
            + f"(relative paths start at the working directory, now {Path.cwd()})"
        )
    return files


def _describe(key: str, path: Path, official: OfficialFile | None) -> str:
    return f"  {key}: {path}" + (f"\n    {official.what}: {official.at}" if official else "")


class RawData(NamedTuple):
    """The output of an adapter: documents, and the queries and judgments of each split.

    Each iterable is consumed once, in this order. A split without judgments (None) keeps all its queries,
    which must have answers. `files` are the files that the documents come from, if they come from files.
    """

    documents: Iterable[Entry]
    splits: Mapping[str, tuple[Iterable[Entry], Iterable[Judgment] | None]]
    files: Sequence[Path] = ()


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
    train_queries: DocumentQueries | None = None
    """Training queries made from the documents, in place of the data's own; null: those of the data."""

    @property
    def split_names(self) -> list[str]:
        """The splits that the settings define; none for an adapter that reads splits without a setting."""
        made = [self.train_queries.split] if self.train_queries else []
        return list(dict.fromkeys([*getattr(self, "splits", {}), *made]))

    def published_counts(self, split: str) -> SplitCounts:
        """The published counts of a split; none for queries that are made here."""
        is_made = self.train_queries is not None and self.train_queries.split == split
        return SplitCounts() if is_made else self.official.splits.get(split, SplitCounts())

    def of_splits(self, names: Iterable[str]) -> Self:
        """The same data with these splits only; the files of other splits are not read and need not exist.

        A split that `train_queries` makes is not read from files. An adapter without a `splits` setting reads
        all its splits. Raises ValueError for a split that `data` does not define.
        """
        splits = getattr(self, "splits", None)
        if splits is None:
            return self
        selected = sorted(names)
        if unknown := [name for name in selected if name not in self.split_names]:
            raise ValueError(
                f"no split {unknown[0]!r}; splits: {', '.join(self.split_names)}; "
                "use one of them, or add it under `data`"
            )
        queries = self.train_queries
        made = queries.split if queries else None
        kept = {name: files for name, files in splits.items() if name in selected and name != made}
        return self.model_copy(
            update={"splits": kept, "train_queries": queries if made in selected else None}
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
        self, folder: Path | None = None, check: Callable[[Iterable[str]], None] | None = None
    ) -> Collection:
        """Read and check the collection: all documents, and the queries and judgments of each split.

        folder: a new folder that documents are written to as they are read and memory-mapped from, so that
        few of them are in memory at a time; None keeps them in memory. check: called with the names of the
        documents' fields once the first document is read.

        Raises ValueError for a repeated id, a text that is empty or holds a NUL, a judgment of an unknown id,
        two grades for one pair, a split that has no usable queries or neither judgments nor answers, and
        documents that `train_queries` makes no query from.
        """
        # A split that is made is not read.
        data = self.of_splits(self.split_names) if self.train_queries else self
        documents, splits, files = data.raw_data()
        documents = _first_checked(documents, check) if check else documents
        corpus = build_texts(documents, "document", OnDisk(folder) if folder else InMemory(), files)
        if not len(corpus):
            raise ValueError(
                f"no document was read; expected at least one; see the files that `data` names: {self!r}"
            )
        skipped: dict[str, int] = {}
        checked = {
            name: self._split(name, corpus, entries, judgments, skipped)
            for name, (entries, judgments) in splits.items()
            if not self.train_queries or name != self.train_queries.split
        }
        if self.train_queries:
            made = self.train_queries.make_split(corpus, self.relevance_threshold, skipped)
            checked = {made.name: made, **checked}
        collection = Collection(corpus, checked, skipped)
        collection.log_skipped()
        return collection

    def _split(
        self,
        name: str,
        documents: Texts,
        entries: Iterable[Entry],
        judgments: Iterable[Judgment] | None,
        skipped: dict[str, int],
    ) -> Split:
        queries = read_queries(entries)
        if judgments is None:  # passages are judged by the answers that they contain
            if ANSWERS not in queries.columns:
                raise ValueError(
                    f"split {name!r} has neither `qrels` nor questions with answers; "
                    f"give it one of the two: {self!r}"
                )
            return Split(name, queries, Qrels.of([], [], [], len(queries), self.relevance_threshold))
        qrels = self._qrels(name, queries, documents, judgments, skipped)
        with_positives = np.flatnonzero(np.diff(qrels.relevant_offsets))
        if not len(with_positives):
            raise ValueError(
                f"split {name!r} has no query with a relevant document: {len(queries)} queries and "
                f"{len(qrels.rows)} judgments were read; relevant is a grade of at least "
                f"{self.relevance_threshold}; "
                "check this split under `data`, and `data.relevance_threshold`: "
                f"{self!r}"
            )
        used = qrels.subset(with_positives)
        _count_skipped(skipped, f"{name} queries without positives", len(queries) - len(with_positives))
        _count_skipped(
            skipped, f"{name} judgments of queries without positives", len(qrels.rows) - len(used.rows)
        )
        return Split(name, queries.subset(with_positives), used)

    def _qrels(
        self,
        name: str,
        queries: Texts,
        documents: Texts,
        judgments: Iterable[Judgment],
        skipped: dict[str, int],
    ) -> Qrels:
        positions: dict[int, int] = {}  # the index of each pair, which is encoded as one number
        grades, numbers = array("i"), array("q")
        unknown: list[Judgment] = []
        unknown_count = 0
        for judgment in judgments:
            query, document = queries.rows.get(judgment.query), documents.rows.get(judgment.document)
            if query is None or document is None:
                unknown_count += 1
                unknown += [judgment] if unknown_count <= UNKNOWN_SHOWN else []
                continue
            position = positions.setdefault(query * len(documents) + document, len(positions))
            if position == len(grades):
                grades.append(judgment.grade)
                numbers.append(judgment.line.number)
            elif grades[position] != judgment.grade:
                raise _two_grades(judgment, grades[position], numbers[position])
        if unknown and self.unknown_ids == "refuse":
            raise _unknown_ids(name, unknown_count, unknown)
        _count_skipped(skipped, f"{name} judgments of unknown ids", unknown_count)
        pairs = np.fromiter(positions, np.int64, len(positions))
        return Qrels.of(
            *np.divmod(pairs, len(documents)), np.asarray(grades), len(queries), self.relevance_threshold
        )


def _first_checked(entries: Iterable[Entry], check: Callable[[Iterable[str]], None]) -> Iterator[Entry]:
    for index, entry in enumerate(entries):
        if index == 0:
            check(entry.fields)
        yield entry


def paths_in(settings: Any, key: str) -> list[tuple[str, Path]]:
    """Every path in the settings under `key`, with its own key."""
    if isinstance(settings, Path):
        return [(key, settings)]
    inner = dict(settings) if isinstance(settings, Settings | Mapping) else {}
    return [pair for name, value in inner.items() for pair in paths_in(value, f"{key}.{name}")]


def read_queries(entries: Iterable[Entry]) -> Texts:
    """Read and check queries, judged or not. Raises ValueError as `Format.read` does."""
    return build_texts(map(_on_one_line, entries), "query", InMemory())


def _on_one_line(entry: Entry) -> Entry:
    # Pyserini's topic files have one query per line. A query that did not fit there would be ranked
    # differently.
    return entry._replace(fields={name: " ".join(value.split()) for name, value in entry.fields.items()})


def _two_grades(again: Judgment, grade: int, number: int) -> ValueError:
    pair = f"query {shown(again.query)} and document {shown(again.document)}"
    problem = f"grade {again.grade} for {pair}, which line {number} gave {grade}"
    return again.line.error(problem, "one grade for a pair", "delete one of the two lines")


def _unknown_ids(name: str, count: int, first: list[Judgment]) -> ValueError:
    examples = ", ".join(
        f"{j.line.path}:{j.line.number} {f'{j.query} {j.document}'[:SHOWN_CHARACTERS]}" for j in first
    )
    return ValueError(
        f"{count} judgments of split {name!r} refer to a query or a document that does not exist; "
        f"the first: {examples}; add what is missing, or skip such judgments with data.unknown_ids=skip"
    )


def _count_skipped(skipped: dict[str, int], description: str, count: int) -> None:
    if count:
        skipped[description] = count
