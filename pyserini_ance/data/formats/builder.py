"""The builder of texts: it checks the entries that an adapter yields and stores them.

Further down are the rows of tables as MS MARCO, TREC and BEIR write them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats.lines import Line, LineOrigins, is_writable, shown, whole_number
from pyserini_ance.data.formats.text_files import find_file, read_lines
from pyserini_ance.recipe.components import Settings
from pyserini_ance.storage.progress import progress_bar

DELAY_SECONDS = 2  # a faster reading shows no bar
ENTRIES_PER_UPDATE = 1024


class ReadProgress:
    """A progress bar of reading, shown after two seconds and cleared at the end.

    It counts the bytes of `files`, which gives it a total; without files, it counts entries. entries: those
    that were read before.
    """

    def __init__(self, label: str, files: Sequence[Path] = (), entries: int = 0):
        self._sizes = {path: path.stat().st_size for path in files}
        unit: dict[str, Any] = {"unit": " entries"}
        if files:
            unit = {"unit": "B", "unit_scale": True, "total": sum(self._sizes.values())}
        self._bar = progress_bar(desc=label, delay=DELAY_SECONDS, leave=False, **unit)
        self._entries = entries
        self._finished_bytes = 0  # of the files before the current one
        self._path: Path | None = None

    def __enter__(self) -> "ReadProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def at(self, line: Line) -> None:
        """Count an entry that was read from this line."""
        self._entries += 1
        if line.path is not self._path:
            self._path = line.path
            before = takewhile(lambda path: path != line.path, self._sizes)
            self._finished_bytes = sum(self._sizes[path] for path in before)
        if self._entries % ENTRIES_PER_UPDATE == 0:
            self._update(line)

    def _update(self, line: Line) -> None:
        if not self._sizes:
            self._bar.update(ENTRIES_PER_UPDATE)
            return
        self._bar.set_postfix_str(f"{self._entries:,} entries", refresh=False)
        self._bar.update(self._finished_bytes + line.read_bytes - self._bar.n)


class Entry(NamedTuple):
    """A document or query as it was read.

    All entries of one kind have the same fields; questions have `answers`.
    """

    line: Line
    id: str
    fields: dict[str, str]
    answers: list[str] | None = None


class LineDocuments(Iterable[Entry]):
    """Documents of one line each: what `parse` makes of each line of `files`, which is one or (None) nothing.

    A reading of such documents that is killed can continue behind any line.
    """

    def __init__(self, files: Sequence[Path], parse: Callable[[Line], Entry | None]):
        self.files, self._parse = files, parse

    def __iter__(self) -> Iterator[Entry]:
        return self.after(0, 0, 0)

    def after(self, file: int, line: int, byte: int) -> Iterator[Entry]:
        """The documents after a line of the file with this index; the line ends at this byte of its text."""
        for path in self.files[file:]:
            for one in read_lines(path, None, line, byte):
                if (document := self._parse(one)) is not None:
                    yield document
            line = byte = 0


class Judgment(NamedTuple):
    """A row of a qrels file, whose two ids are not looked up yet."""

    line: Line
    query: str
    document: str
    grade: int


class Store(Protocol):
    """A destination of texts, which are added row by row."""

    origins: LineOrigins

    @property
    def fields(self) -> Sequence[str]:
        """The names of the fields; none without a row."""

    @property
    def rows(self) -> int:
        """The number of rows so far."""

    def add(self, entry: Entry) -> None:
        """Add an entry as the next row."""

    def texts(self) -> Texts:
        """All texts that were added."""

    def first_repeat(self, texts: Texts) -> tuple[int, int] | None:
        """The first row whose id occurs again, and the row of its next occurrence; None if there is none."""

    def close(self) -> None:
        """Close open files."""


class InMemory:
    """A store that keeps texts in lists."""

    def __init__(self) -> None:
        self.origins = LineOrigins()
        self._ids: list[str] = []
        self._columns: dict[str, list[str]] = {}
        self._answers: dict[int, str] = {}

    @property
    def fields(self) -> Sequence[str]:
        return list(self._columns)

    @property
    def rows(self) -> int:
        return len(self._ids)

    def add(self, entry: Entry) -> None:
        if entry.answers is not None:
            self._answers[len(self._ids)] = json.dumps(entry.answers)
        self._ids.append(entry.id)
        for name, value in entry.fields.items():
            self._columns.setdefault(name, []).append(value)

    def texts(self) -> Texts:
        columns = dict(self._columns)
        if self._answers:
            columns[ANSWERS] = [self._answers.get(row, "[]") for row in range(len(self._ids))]
        return Texts(self._ids, columns)

    def first_repeat(self, texts: Texts) -> tuple[int, int] | None:
        if len(texts.rows) == len(texts):
            return None
        first = next(row for row, id in enumerate(texts.ids) if texts.rows[id] != row)
        return first, texts.ids.index(texts.ids[first], first + 1)

    def close(self) -> None:
        pass


def build_texts(
    entries: Iterable[Entry],
    noun: str,
    store: Store,
    files: Sequence[Path] = (),
    check: Callable[[Texts, LineOrigins], None] = lambda texts, origins: None,
    empty_cure: str = "give it one, or delete it and its judgments",
) -> Texts:
    """Check all entries and store them as texts.

    noun: what errors call an entry. files: the files that are read, if known; they give the progress bar its
    total. check: called with all texts and their lines at the end. empty_cure: what errors say to do about an
    entry without text.

    Raises ValueError for an id that is empty, holds blanks or occurs twice, and for a text that is empty or
    holds a NUL.
    """
    fields: Mapping[str, Any] = dict.fromkeys(store.fields)
    with closing(store), ReadProgress(f"read {noun} texts", files, store.rows) as bar:
        for entry in entries:
            _check(entry, noun, empty_cure)
            fields = fields or entry.fields
            if entry.fields.keys() != fields.keys():
                raise _other_fields(entry, noun, fields)
            store.add(entry)
            store.origins.add(entry.line)
            bar.at(entry.line)
        texts = store.texts()
        if repeat := store.first_repeat(texts):
            raise repeated_id(noun, texts.ids[repeat[0]], *map(store.origins.line, repeat))
        check(texts, store.origins)
    return texts


def repeated_id(noun: str, id: str, first: Line, again: Line) -> ValueError:
    """The error to raise for an id that is given in two lines."""
    problem = f"{noun} id {shown(id)} was already given in {first.place}"
    return again.error(problem, "each id once", "delete one of the two, or rename it")


def is_empty(entry: Entry) -> bool:
    """Whether no field has more than blanks."""
    return all(not value or value.isspace() for value in entry.fields.values())


def _check(entry: Entry, noun: str, empty_cure: str) -> None:
    if entry.id.split() != [entry.id]:
        cure = "rename it in all files (columns of run files are separated by blanks)"
        raise entry.line.error(f"{noun} id {shown(entry.id)}", "an id without blanks", cure)
    values = entry.fields.values()
    if is_empty(entry):
        expected = f"a text in {' or '.join(entry.fields)}"
        raise entry.line.error(f"{noun} {shown(entry.id)} is empty", expected, empty_cure)
    if not all(map(is_writable, (entry.id, *values, *(entry.answers or ())))):
        problem = f"{noun} {shown(entry.id)} holds a NUL character or half a surrogate pair"
        raise entry.line.error(problem, "text that can be written as UTF-8", "remove the character")


def _other_fields(entry: Entry, noun: str, fields: Iterable[str]) -> ValueError:
    problem = f"{noun} {shown(entry.id)} has the fields {', '.join(entry.fields)}"
    expected = f"{', '.join(fields)}, like the entries before it"
    return entry.line.error(problem, expected, "add the missing fields, or remove the others")


class TrecQueries(Settings):
    """The files of a split: queries as `qid TAB text`, and TREC qrels."""

    queries: Path
    """The table of queries."""
    qrels: Path
    """The TREC qrels file."""


def trec_splits(splits: Mapping[str, TrecQueries]) -> dict[str, tuple[Iterator[Entry], Iterator[Judgment]]]:
    """The queries and judgments of each split.

    Raises FileNotFoundError with the key of a missing file, before anything is read.
    """
    contents = {}
    for name, files in splits.items():
        queries = find_file(files.queries, f"data.splits.{name}.queries")
        qrels = find_file(files.qrels, f"data.splits.{name}.qrels")
        contents[name] = tsv_entries(queries), trec_judgments(qrels)
    return contents


def tsv_entries(path: Path) -> Iterator[Entry]:
    """Entries of a table without header: id and text, separated by one tab."""
    return map(tsv_entry, read_lines(path))


def tsv_entry(line: Line) -> Entry:
    """The entry in a line of such a table."""
    id, text = line.cells(("id", "text"))  # which may be empty is the same for all formats
    return Entry(line, id, {"text": text})


def trec_judgments(path: Path) -> Iterator[Judgment]:
    """Judgments of TREC qrels: four columns separated by blanks or tabs. The second column is ignored."""
    for line in read_lines(path):
        query, _, document, grade = line.columns(("query id", "0", "document id", "grade"), separator=None)
        yield Judgment(line, query, document, _grade(line, grade))


def beir_judgments(path: Path) -> Iterator[Judgment]:
    """Judgments of BEIR: three columns separated by tabs. A first line that ends in `score` is the header."""
    for index, line in enumerate(read_lines(path)):
        query, document, grade = line.columns(("query-id", "corpus-id", "score"))
        if index > 0 or grade != "score":
            yield Judgment(line, query, document, _grade(line, grade))


def judged_only(queries: Iterable[Entry], judgments: list[Judgment]) -> tuple[list[Entry], list[Judgment]]:
    """Select the queries that a split judges, if one file has the queries of all splits."""
    judged = {judgment.query for judgment in judgments}
    return [entry for entry in queries if entry.id in judged], judgments


def _grade(line: Line, grade: str) -> int:
    try:
        return whole_number(grade)
    except ValueError:
        raise line.error(
            f"grade {shown(grade)}", "a whole number of at most nine digits", "correct the line"
        ) from None
