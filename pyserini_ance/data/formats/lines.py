"""A line of a text file, and the values in it.

Errors of malformed lines name the file, the line number and the cure.
"""

import csv
import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

SHOWN_CHARACTERS = 80
# json raises these, too, for numbers of thousands of digits and thousands of nested levels.
BEYOND = (ValueError, RecursionError)

_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,9}")


class Argument(Path):
    """An argument of a call in the place of a file: its lines are the records that a caller passes.

    keys: of a mapping, whose values are then the lines; None: the lines are numbered from 0, as in a list.
    """

    def __init__(self, name: str, keys: Sequence[object] | None = None):
        super().__init__(name)
        self.keys = keys

    def place(self, number: int) -> str:
        """A line, as Python would select it."""
        return f"{self}[{shown(self.keys[number]) if self.keys else number}]"


class Line(NamedTuple):
    """A line without its line end, and its position.

    number: counts from 1. within: the position inside a long line, for messages.
    """

    path: Path
    number: int
    text: str
    within: str = ""

    @property
    def place(self) -> str:
        """The position, for messages."""
        if isinstance(self.path, Argument):
            return self.path.place(self.number)
        return f"{self.path}, line {self.number}{self.within}"

    @property
    def short_place(self) -> str:
        """The position, for a list of several."""
        return self.place if isinstance(self.path, Argument) else f"{self.path}:{self.number}"

    def error(self, problem: str, expected: str, cure: str) -> ValueError:
        """The error to raise for this line."""
        return ValueError(f"{self.place}: {problem}; expected {expected}; {cure}")

    def columns(self, names: Sequence[str], separator: str | None = "\t") -> list[str]:
        """The values of a table row, none of them empty. Separator None means any run of blanks and tabs."""
        values = self.cells(names, separator)
        if all(values) and not any(map(str.isspace, values)):
            return values
        empty = next(name for name, value in zip(names, values, strict=True) if not value.strip())
        raise self._other_layout(f"empty {empty}", names, separator)

    def cells(self, names: Sequence[str], separator: str | None = "\t") -> list[str]:
        """Like `columns`, but values may be empty."""
        values = self.text.split(separator)
        if len(values) != len(names):
            raise self._other_layout(f"{len(values)} columns", names, separator)
        return values

    def quoted_cells(self, names: Sequence[str]) -> list[str]:
        """Like `cells`, but values may be in double quotes, with inner quotes doubled, as in CSV files."""
        try:
            values = next(csv.reader([self.text], delimiter="\t", strict=True))
        except csv.Error as error:
            raise self._other_layout(f"{error},", names) from error
        if len(values) != len(names):
            raise self._other_layout(f"{len(values)} columns", names)
        return values

    def _other_layout(self, problem: str, names: Sequence[str], separator: str | None = "\t") -> ValueError:
        by = "blanks or tabs" if separator is None else "one tab"
        return self.error(
            f"{problem} in {shown(self.text)}",
            f"{len(names)} columns separated by {by}: {', '.join(names)}",
            "correct or delete the line, or pass a file of this layout",
        )

    def json(self) -> dict[str, Any]:
        """The JSON object that the line consists of."""
        cure = "correct the line, or write the file again with one object per line"
        try:
            record = json.loads(self.text)
        except json.JSONDecodeError as error:
            near = shown(self.text[max(0, error.pos - SHOWN_CHARACTERS // 2) :])
            problem = f"malformed JSON at column {error.colno} ({error.msg}) near {near}"
            raise self.error(problem, "a JSON object", cure) from error
        except BEYOND as error:
            raise self.error(f"JSON that cannot be read ({error})", "a JSON object", cure) from error
        if not isinstance(record, dict):
            raise self.error(f"JSON {type(record).__name__} {shown(self.text)}", "a JSON object", cure)
        return record


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


def json_id(line: Line, record: dict[str, Any], *keys: str) -> str:
    """The id under the first of `keys` that the record has.

    An integer becomes its digits, as in Anserini.
    """
    value = next((record[key] for key in keys if key in record), None)
    if not isinstance(value, str) and (isinstance(value, bool) or not isinstance(value, Integral)):
        cure = "give the record an id"
        if isinstance(value, float):  # pandas makes a column float if a value is missing, as after a merge
            cure = "the column is float; write it as int or string"
        if not any(key in record for key in keys):
            cure += f" (its keys: {shown(', '.join(record))}), or set `data.kind` to the layout that it has"
        raise line.error(f"id {shown(value)}", f"a string under {' or '.join(keys)}", cure)
    return str(value)


def json_text(line: Line, record: dict[str, Any], key: str) -> str:
    """The text under `key`; empty if the key is missing or null."""
    value = record.get(key)
    if not isinstance(value, str | None):
        raise line.error(f"{key} {shown(value)}", "a string", f"write `{key}` as one string")
    return value or ""


def json_answers(line: Line, record: dict[str, Any], *keys: str) -> list[str] | None:
    """The list under the first of `keys` that the record has; None if it has none of them."""
    key = next((key for key in keys if record.get(key) is not None), None)
    if key is None:
        return None
    value = record[key]
    if not isinstance(value, list) or not all(isinstance(answer, str) for answer in value):
        raise line.error(
            f"{key} {shown(value)}", "a list of strings", f'write `{key}` as a list, such as ["1984"]'
        )
    return value


def whole_number(text: str) -> int:
    """Parse a grade.

    Raises ValueError for numbers that tools read differently: digits of other scripts, underscores, more than
    32 bits.
    """
    if not _WHOLE_NUMBER.fullmatch(text.strip()):
        raise ValueError(f"{shown(text)} is not a whole number of at most nine digits")
    return int(text)


def is_writable(text: str) -> bool:
    """Whether the text is valid for UTF-8 and C programs: no half of a surrogate pair, no NUL."""
    return is_utf8(text) and "\0" not in text


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8: no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """A value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
