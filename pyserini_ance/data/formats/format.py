"""What every adapter shares: what it reads is checked here and becomes a Collection."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from pyserini_ance.data.answers import ANSWERS
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.formats.gather import Entry, InMemory, OnDisk, gather
from pyserini_ance.data.formats.lines import SHOWN_CHARACTERS, Line, shown
from pyserini_ance.data.formats.official import Official
from pyserini_ance.recipe.parts import Part, Settings

UNKNOWN_SHOWN = 5


class Judgment(NamedTuple):
    """A row of a qrels file, its two ids not yet looked up."""

    line: Line
    query: str
    document: str
    grade: int


class Parts(NamedTuple):
    """What an adapter reads: documents, and by split queries and judgments. All are read once, in this order.

    A split whose judgments are None keeps all its queries, which have answers: nobody has judged anything.
    `files` are those that the documents come from, where they come from files.
    """

    documents: Iterable[Entry]
    splits: Mapping[str, tuple[Iterable[Entry], Iterable[Judgment] | None]]
    files: Sequence[Path] = ()


class Format(Part):
    """Files of one layout. An adapter says how they are read, by `parts`; what they must satisfy is said here.

    `official` is what is published of these files; it changes nothing that is read.
    """

    official: Official = Official()
    relevance_threshold: int = Field(1, ge=1)
    # Whether what names stand for never changes, so that what was read of them need not be read again.
    by_name: ClassVar[bool] = False
    unknown_ids: Literal["refuse", "skip"] = "refuse"

    def of_splits(self, names: Iterable[str]) -> Self:
        """The same data, whose other splits are not read, and need not be there. Raises ValueError for a split that `data` does not name.

        An adapter whose files say themselves which splits there are reads all.
        """
        splits = getattr(self, "splits", None)
        if splits is None:
            return self
        wanted = sorted(names)
        if unknown := [name for name in wanted if name not in splits]:
            raise ValueError(f"no split {unknown[0]!r}; splits: {', '.join(splits)}; name one of them, or add it under `data`")
        return self.model_copy(update={"splits": {name: files for name, files in splits.items() if name in wanted}})

    def parts(self) -> Parts:
        raise NotImplementedError(f"{type(self).__name__}.parts")

    def files(self) -> list[tuple[str, Path]]:
        """All files and folders that are read, as the recipe names them, each with its key; none for a kind that reads something
        else, whose data may change unseen.
        """
        return paths_in(self, "data")

    def read(self, folder: Path | None = None, check: Callable[[Iterable[str]], None] | None = None) -> Collection:
        """The checked collection of all documents and, by split, its queries and their judgments.

        With `folder`, which is made, documents go there as they are read, and are mapped from there: however many they are, few of
        them are in memory. `check` is called with the names of the documents' fields as soon as the first is read. Raises ValueError
        for an id given twice, a text that is empty or holds a NUL, a judgment of an unknown id, two grades for one pair, and for a
        split that is left without queries, or has neither judgments nor answers.
        """
        documents, splits, files = self.parts()
        documents = _first_checked(documents, check) if check else documents
        corpus = gather(documents, "document", OnDisk(folder) if folder else InMemory(), files)
        if not len(corpus):
            raise ValueError(f"no document was read; expected at least one; see the files that `data` names: {self!r}")
        skipped: dict[str, int] = {}
        made = {name: self._split(name, corpus, *parts, skipped) for name, parts in splits.items()}
        collection = Collection(corpus, made, skipped)
        collection.log_skipped()
        return collection

    def _split(self, name: str, documents: Texts, entries, judgments, skipped: dict[str, int]) -> Split:
        queries = read_queries(entries)
        if judgments is None:  # of questions, whose passages are judged by the answers they hold
            if ANSWERS not in queries.columns:
                raise ValueError(f"split {name!r} has neither `qrels` nor questions with answers; give it one of the two: {self!r}")
            return Split(name, queries, Qrels.of([], [], [], len(queries), self.relevance_threshold))
        qrels = self._qrels(name, queries, documents, judgments, skipped)
        kept = np.flatnonzero(np.diff(qrels.relevant_offsets))
        if not len(kept):
            raise ValueError(
                f"split {name!r} has no query with a relevant document: {len(queries)} queries and {len(qrels.rows)} "
                f"judgments were read, and relevant is a grade of at least {self.relevance_threshold}; "
                f"see what `data` says of this split, and `data.relevance_threshold`: {self!r}"
            )
        used = qrels.subset(kept)
        _skip(skipped, f"{name} queries without positives", len(queries) - len(kept))
        _skip(skipped, f"{name} judgments of queries without positives", len(qrels.rows) - len(used.rows))
        return Split(name, queries.subset(kept), used)

    def _qrels(self, name: str, queries: Texts, documents: Texts, judgments: Iterable[Judgment], skipped: dict[str, int]) -> Qrels:
        places: dict[int, int] = {}  # of each pair, as one number
        grades, numbers = array("i"), array("q")
        unknown: list[Judgment] = []
        unknown_count = 0
        for judgment in judgments:
            query, document = queries.rows.get(judgment.query), documents.rows.get(judgment.document)
            if query is None or document is None:
                unknown_count += 1
                unknown += [judgment] if unknown_count <= UNKNOWN_SHOWN else []
                continue
            place = places.setdefault(query * len(documents) + document, len(places))
            if place == len(grades):
                grades.append(judgment.grade)
                numbers.append(judgment.line.number)
            elif grades[place] != judgment.grade:
                raise _two_grades(judgment, grades[place], numbers[place])
        if unknown and self.unknown_ids == "refuse":
            raise _unknown_ids(name, unknown_count, unknown)
        _skip(skipped, f"{name} judgments of unknown ids", unknown_count)
        pairs = np.fromiter(places, np.int64, len(places))
        return Qrels.of(*np.divmod(pairs, len(documents)), np.asarray(grades), len(queries), self.relevance_threshold)


def _first_checked(entries: Iterable[Entry], check: Callable[[Iterable[str]], None]) -> Iterator[Entry]:
    for place, entry in enumerate(entries):
        if place == 0:
            check(entry.fields)
        yield entry


def paths_in(settings: Any, key: str) -> list[tuple[str, Path]]:
    """Every path that the settings under `key` hold, with its own key."""
    if isinstance(settings, Path):
        return [(key, settings)]
    inner = dict(settings) if isinstance(settings, Settings | Mapping) else {}
    return [found for name, value in inner.items() for found in paths_in(value, f"{key}.{name}")]


def read_queries(entries: Iterable[Entry]) -> Texts:
    """Checked, whatever is relevant to them. Raises ValueError as `Format.read` does."""
    return gather(map(_on_one_line, entries), "query", InMemory())


def _on_one_line(entry: Entry) -> Entry:
    # Pyserini's topic files hold one query a line: what we encode must fit there, or its ranking differs from ours.
    return entry._replace(fields={name: " ".join(value.split()) for name, value in entry.fields.items()})


def _two_grades(again: Judgment, grade: int, number: int) -> ValueError:
    pair = f"query {shown(again.query)} and document {shown(again.document)}"
    found = f"grade {again.grade} for {pair}, which line {number} gave {grade}"
    return again.line.error(found, "one grade for a pair", "delete one of the two lines")


def _unknown_ids(name: str, count: int, first: list[Judgment]) -> ValueError:
    examples = ", ".join(f"{j.line.path}:{j.line.number} {f'{j.query} {j.document}'[:SHOWN_CHARACTERS]}" for j in first)
    return ValueError(
        f"{count} judgments of split {name!r} name a query or a document that does not exist; "
        f"the first: {examples}; add what is missing, or leave such judgments out with data.unknown_ids=skip"
    )


def _skip(skipped: dict[str, int], what: str, count: int) -> None:
    if count:
        skipped[what] = count
