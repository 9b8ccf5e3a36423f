"""The builder of texts: it checks the entries that an adapter yields and stores them in memory or on disk."""

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tqdm import tqdm

from pyserini_ance.data.answer_matching import ANSWERS
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.collection_cache import TextsWriter, open_texts
from pyserini_ance.data.formats.lines import Line, is_writable, shown
from pyserini_ance.data.lookup import RowsOfIds, first_repeat
from pyserini_ance.data.string_arrays import STRINGS_PER_BLOCK, Strings

DELAY_SECONDS = 2  # a faster reading shows no bar
ENTRIES_PER_UPDATE = 1024


class ReadProgress:
    """A progress bar of reading, shown after two seconds and cleared at the end.

    It counts the bytes of `files`, which gives it a total; without files, it counts entries.
    """

    def __init__(self, label: str, files: Sequence[Path] = ()):
        self._sizes = {path: path.stat().st_size for path in files}
        unit: dict[str, Any] = {"unit": " entries"}
        if files:
            unit = {"unit": "B", "unit_scale": True, "total": sum(self._sizes.values())}
        self._bar = tqdm(desc=label, delay=DELAY_SECONDS, leave=False, **unit)
        self._entries = 0
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
            if self._path is not None:
                self._finished_bytes += self._sizes.get(self._path, 0)
            self._path = line.path
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


class Store(Protocol):
    """A destination of texts, which are added row by row."""

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
        self._ids: list[str] = []
        self._columns: dict[str, list[str]] = {}
        self._answers: dict[int, str] = {}

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


class OnDisk:
    """A store that writes documents into a new folder.

    In memory are a block of texts, and 8 bytes of each text.

    It stores no answers, since documents have none.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._writer: TextsWriter | None = None
        self._block: list[tuple[str, ...]] = []

    def add(self, entry: Entry) -> None:
        if self._writer is None:
            self._writer = TextsWriter(self._folder, list(entry.fields))
        self._block.append((entry.id, *(entry.fields[name] for name in self._writer.fields)))
        if len(self._block) == STRINGS_PER_BLOCK:
            self._write()

    def texts(self) -> Texts:
        if self._writer is None:
            return Texts([], {})
        self._write()
        return open_texts(self._folder, self._writer.finish())

    def first_repeat(self, texts: Texts) -> tuple[int, int] | None:
        if not len(texts):
            return None
        assert isinstance(texts.ids, Strings) and isinstance(texts.rows, RowsOfIds)
        return first_repeat(texts.ids, texts.rows)

    def close(self) -> None:
        if self._writer:
            self._writer.close()

    def _write(self) -> None:
        if self._writer and self._block:
            ids, *columns = zip(*self._block, strict=True)
            self._writer.append(ids, columns)
            self._block.clear()


class LineOrigins:
    """The file and line number of each row, in 8 bytes a row, since there are few files."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._paths: list[Path] = []
        self._starts: list[int] = []  # the first row of each file

    def add(self, line: Line) -> None:
        """Add a row that was read from this line."""
        if not self._paths or line.path is not self._paths[-1]:
            self._paths.append(line.path)
            self._starts.append(len(self._numbers))
        self._numbers.append(line.number)

    def line(self, row: int) -> Line:
        """The line that a row was read from, without its text."""
        return Line(self._paths[bisect_right(self._starts, row) - 1], self._numbers[row], "")


def build_texts(entries: Iterable[Entry], noun: str, store: Store, files: Sequence[Path] = ()) -> Texts:
    """Check all entries and store them as texts.

    noun: what errors call an entry. files: the files that are read, if known; they give the progress bar its
    total.

    Raises ValueError for an id that is empty, holds blanks or occurs twice, and for a text that is empty or
    holds a NUL.
    """
    origins = LineOrigins()
    fields: Iterable[str] | None = None
    with closing(store), ReadProgress(f"read {noun} texts", files) as bar:
        for entry in entries:
            _check(entry, noun)
            fields = fields or entry.fields.keys()
            if entry.fields.keys() != fields:
                raise _other_fields(entry, noun, fields)
            store.add(entry)
            origins.add(entry.line)
            bar.at(entry.line)
        texts = store.texts()
    if repeat := store.first_repeat(texts):
        first, again = map(origins.line, repeat)
        repeated = shown(texts.ids[repeat[0]])
        problem = f"{noun} id {repeated} was already given in {first.path}, line {first.number}"
        raise again.error(problem, "each id once", "delete one of the two, or rename it")
    return texts


def _check(entry: Entry, noun: str) -> None:
    if entry.id.split() != [entry.id]:
        cure = "rename it in all files (columns of run files are separated by blanks)"
        raise entry.line.error(f"{noun} id {shown(entry.id)}", "an id without blanks", cure)
    values = entry.fields.values()
    if all(not value or value.isspace() for value in values):
        expected = f"a text in {' or '.join(entry.fields)}"
        cure = "give it one, or delete it and its judgments"
        raise entry.line.error(f"{noun} {shown(entry.id)} is empty", expected, cure)
    if not all(map(is_writable, (entry.id, *values, *(entry.answers or ())))):
        problem = f"{noun} {shown(entry.id)} holds a NUL character or half a surrogate pair"
        raise entry.line.error(problem, "text that can be written as UTF-8", "remove the character")


def _other_fields(entry: Entry, noun: str, fields: Iterable[str]) -> ValueError:
    problem = f"{noun} {shown(entry.id)} has the fields {', '.join(entry.fields)}"
    expected = f"{', '.join(fields)}, like the entries before it"
    return entry.line.error(problem, expected, "add the missing fields, or remove the others")
