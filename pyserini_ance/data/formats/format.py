"""What every adapter shares: entries and judgments are checked here and become a Collection."""

import json
import logging
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from pyserini_ance.data.answers import ANSWERS
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.formats.lines import SHOWN_CHARACTERS, Line, is_writable, shown
from pyserini_ance.recipe.parts import Part

logger = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A document or query as it was read; all entries of one kind have the same fields. `answers` are a question's."""

    line: Line
    id: str
    fields: dict[str, str]
    answers: list[str] | None = None


class Judgment(NamedTuple):
    """A row of a qrels file, its two ids not yet looked up."""

    line: Line
    query: str
    document: str
    grade: int


class Format(Part):
    """Files of one layout. An adapter says how they are read; what they must satisfy is said here."""

    relevance_threshold: int = Field(1, ge=1)
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

    def read(self) -> Collection:
        raise NotImplementedError(f"{type(self).__name__}.read")

    def assemble(
        self, documents: Iterable[Entry], splits: Mapping[str, tuple[Iterable[Entry], Iterable[Judgment] | None]]
    ) -> Collection:
        """The checked collection of all documents and, by split, its queries and their judgments.

        A split whose judgments are None keeps all its queries: nobody has judged anything. Raises ValueError for an id given twice, a text
        that is empty or holds a NUL, a judgment of an unknown id, two grades for one pair, and for a split that is left without queries.
        """
        corpus = _texts(documents, "document")
        if not len(corpus):
            raise ValueError(f"no document was read; expected at least one; see the files that `data` names: {self!r}")
        skipped: dict[str, int] = {}
        made = {name: self._split(name, corpus, *parts, skipped) for name, parts in splits.items()}
        return Collection(corpus, made, skipped)

    def _split(self, name: str, documents: Texts, entries, judgments, skipped: dict[str, int]) -> Split:
        queries = read_queries(entries)
        if judgments is None:  # of questions, whose passages are judged by the answers they hold
            return Split(name, queries, Qrels.of([], [], [], len(queries), self.relevance_threshold))
        qrels = self._qrels(name, queries, documents, judgments, skipped)
        kept = np.flatnonzero(np.diff(qrels.relevant_offsets))
        if not len(kept):
            raise ValueError(
                f"split {name!r} has no query with a relevant document: {len(queries)} queries and {len(qrels.rows)} "
                f"judgments were read, and relevant is a grade of at least {self.relevance_threshold}; "
                f"see what `data` says of this split, and `data.relevance_threshold`: {self!r}"
            )
        _skip(skipped, f"{name} queries without positives", len(queries) - len(kept))
        return Split(name, queries.subset(kept), qrels.subset(kept))

    def _qrels(self, name: str, queries: Texts, documents: Texts, judgments, skipped: dict[str, int]) -> Qrels:
        known: dict[tuple[int, int], Judgment] = {}
        unknown: list[Judgment] = []
        for judgment in judgments:
            pair = queries.rows.get(judgment.query), documents.rows.get(judgment.document)
            if None in pair:
                unknown.append(judgment)
            elif known.setdefault(pair, judgment).grade != judgment.grade:
                raise _two_grades(known[pair], judgment)
        if unknown and self.unknown_ids == "refuse":
            raise _unknown_ids(name, unknown)
        _skip(skipped, f"{name} judgments of unknown ids", len(unknown))
        query_rows, document_rows = np.array(list(known), np.int64).reshape(-1, 2).T
        grades = [judgment.grade for judgment in known.values()]
        return Qrels.of(query_rows, document_rows, grades, len(queries), self.relevance_threshold)


def read_queries(entries: Iterable[Entry]) -> Texts:
    """Checked, whatever is relevant to them. Raises ValueError as `Format.assemble` does."""
    return _texts(map(_on_one_line, entries), "query")


def _texts(entries: Iterable[Entry], noun: str) -> Texts:
    """Checked one by one; `noun` is what an error calls an entry."""
    ids: list[str] = []
    columns: defaultdict[str, list[str]] = defaultdict(list)
    paths: list[Path] = []
    numbers = array("q")
    answers: dict[int, str] = {}
    for entry in entries:
        _check(entry, noun)
        if entry.answers is not None:
            answers[len(ids)] = json.dumps(entry.answers)
        ids.append(entry.id)
        paths.append(entry.line.path)
        numbers.append(entry.line.number)
        for name, value in entry.fields.items():
            columns[name].append(value)
    if answers:
        columns[ANSWERS] = [answers.get(row, "[]") for row in range(len(ids))]
    texts = Texts(ids, dict(columns))
    if len(texts.rows) < len(texts):
        first, again = _given_twice(texts)
        found = f"{noun} id {shown(ids[first])} was already given in {paths[first]}, line {numbers[first]}"
        raise Line(paths[again], numbers[again], "").error(found, "each id once", "delete one of the two, or rename it")
    return texts


def _given_twice(texts: Texts) -> tuple[int, int]:
    first = next(row for row, id in enumerate(texts.ids) if texts.rows[id] != row)
    return first, texts.ids.index(texts.ids[first], first + 1)


def _check(entry: Entry, noun: str) -> None:
    if entry.id.split() != [entry.id]:
        cure = "rename it in all files (columns of run files are separated by blanks)"
        raise entry.line.error(f"{noun} id {shown(entry.id)}", "an id without blanks", cure)
    values = entry.fields.values()
    if all(not value or value.isspace() for value in values):
        expected, cure = f"a text in {' or '.join(entry.fields)}", "give it one, or delete it and its judgments"
        raise entry.line.error(f"{noun} {shown(entry.id)} is empty", expected, cure)
    if not all(map(is_writable, (entry.id, *values, *(entry.answers or ())))):
        found = f"{noun} {shown(entry.id)} holds a NUL character or half a surrogate pair"
        raise entry.line.error(found, "text that can be written as UTF-8", "remove the character")


def _on_one_line(entry: Entry) -> Entry:
    # Pyserini's topic files hold one query a line: what we encode must fit there, or its ranking differs from ours.
    return entry._replace(fields={name: " ".join(value.split()) for name, value in entry.fields.items()})


def _two_grades(first: Judgment, second: Judgment) -> ValueError:
    pair = f"query {shown(second.query)} and document {shown(second.document)}"
    found = f"grade {second.grade} for {pair}, which line {first.line.number} gave {first.grade}"
    return second.line.error(found, "one grade for a pair", "delete one of the two lines")


def _unknown_ids(name: str, unknown: list[Judgment]) -> ValueError:
    examples = ", ".join(f"{j.line.path}:{j.line.number} {f'{j.query} {j.document}'[:SHOWN_CHARACTERS]}" for j in unknown[:5])
    return ValueError(
        f"{len(unknown)} judgments of split {name!r} name a query or a document that does not exist; "
        f"the first: {examples}; add what is missing, or leave such judgments out with data.unknown_ids=skip"
    )


def _skip(skipped: dict[str, int], what: str, count: int) -> None:
    if count:
        skipped[what] = count
        logger.warning("left out: %d %s", count, what)
