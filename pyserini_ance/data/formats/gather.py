"""Gathering: entries, as an adapter yields them, are checked one by one and become texts, in memory or in a folder on disk."""

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from pyserini_ance.data.answers import ANSWERS
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats.bar import ReadingBar
from pyserini_ance.data.formats.lines import Line, is_writable, shown
from pyserini_ance.data.lookup import first_repeat
from pyserini_ance.data.strings import STRINGS_PER_BLOCK
from pyserini_ance.data.text_files import TextsWriter, open_texts


class Entry(NamedTuple):
    """A document or query as it was read; all entries of one kind have the same fields. `answers` are a question's."""

    line: Line
    id: str
    fields: dict[str, str]
    answers: list[str] | None = None


class Store(Protocol):
    """Where texts go, row by row."""

    def add(self, entry: Entry) -> None: ...

    def texts(self) -> Texts:
        """All that were added."""

    def first_repeat(self, texts: Texts) -> tuple[int, int] | None:
        """The first row whose id comes again, and where it does so first."""

    def close(self) -> None: ...


class InMemory:
    """Lists."""

    def __init__(self):
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
        answers = {ANSWERS: [self._answers.get(row, "[]") for row in range(len(self._ids))]} if self._answers else {}
        return Texts(self._ids, self._columns | answers)

    def first_repeat(self, texts: Texts) -> tuple[int, int] | None:
        if len(texts.rows) == len(texts):
            return None
        first = next(row for row, id in enumerate(texts.ids) if texts.rows[id] != row)
        return first, texts.ids.index(texts.ids[first], first + 1)

    def close(self) -> None:
        pass


class OnDisk:
    """A new folder: a block of texts is in memory, and 8 bytes of each; no answers, which documents have none of."""

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
        return first_repeat(texts.ids, texts.rows) if len(texts) else None

    def close(self) -> None:
        if self._writer:
            self._writer.close()

    def _write(self) -> None:
        if self._block:
            ids, *columns = zip(*self._block, strict=True)
            self._writer.append(ids, columns)
            self._block.clear()


class Origins:
    """Where each row was read, in 8 bytes: its line's number, and its file, of which there are few."""

    def __init__(self):
        self._numbers = array("q")
        self._paths: list[Path] = []
        self._starts: list[int] = []  # of each file's rows

    def add(self, line: Line) -> None:
        if not self._paths or line.path is not self._paths[-1]:
            self._paths.append(line.path)
            self._starts.append(len(self._numbers))
        self._numbers.append(line.number)

    def line(self, row: int) -> Line:
        return Line(self._paths[bisect_right(self._starts, row) - 1], self._numbers[row], "")


def gather(entries: Iterable[Entry], noun: str, store: Store, files: Sequence[Path] = ()) -> Texts:
    """All texts, checked; `noun` is what an error calls an entry, and `files`, where known, give the progress bar its end.

    Raises ValueError for an id that is empty, holds blanks or is given twice, and for a text that is empty or holds a NUL.
    """
    origins, fields = Origins(), None
    with closing(store), ReadingBar(f"read {noun} texts", files) as bar:
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
        found = f"{noun} id {shown(texts.ids[repeat[0]])} was already given in {first.path}, line {first.number}"
        raise again.error(found, "each id once", "delete one of the two, or rename it")
    return texts


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


def _other_fields(entry: Entry, noun: str, fields: Iterable[str]) -> ValueError:
    found = f"{noun} {shown(entry.id)} has the fields {', '.join(entry.fields)}"
    return entry.line.error(found, f"{', '.join(fields)}, as those before it", "give it the fields that it lacks, or leave the others out")
