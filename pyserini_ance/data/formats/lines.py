"""Lines of text files, plain or .gz.

Errors of malformed lines name the file, the line number and the cure.
"""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pyserini_ance.data.spilled_numbers import SpilledNumbers

SHOWN_CHARACTERS = 80
BLOCK_BYTES = 1 << 16  # of `read_blocks`: some 1,500 lines of a TREC run, in a processor's own cache
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)
BYTE_ORDER_MARK = "\ufeff"
# json raises these, too, for numbers of thousands of digits and thousands of nested levels.
BEYOND = (ValueError, RecursionError)

Skip = Callable[[bytes], bool]
_WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,9}")


class Line(NamedTuple):
    """A line without its line end, and its position.

    number: counts from 1. within: the position inside a long line, for messages.
    start, end: the bytes of the (unpacked) text at which the line and the next one start.
    read_bytes: the bytes of the file, which may be compressed, that have been read so far.
    """

    path: Path
    number: int
    text: str
    within: str = ""
    start: int = 0
    read_bytes: int = 0
    end: int = 0

    def error(self, problem: str, expected: str, cure: str) -> ValueError:
        """The error to raise for this line."""
        return ValueError(
            f"{self.path}, line {self.number}{self.within}: {problem}; expected {expected}; {cure}"
        )

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


class Block(NamedTuple):
    """Lines of a file that follow one another, as bytes.

    after_line: the number of lines before them.
    """

    path: Path
    after_line: int
    raw: bytes

    def columns(self, count: int) -> list[list[str]] | None:
        """The values of the lines, column by column; columns are separated by any blanks.

        None if a line must be looked at: it is empty, has another number of columns, or is not plain UTF-8.
        """
        try:
            text = self.raw.decode().removesuffix("\n")
        except UnicodeDecodeError:
            return None
        if "\0" in text or BYTE_ORDER_MARK in text:
            return None
        # Splitting all lines at once makes no list for each; a NUL marks where a line ends.
        words = f"{text}\n".replace("\n", " \0 ").split()
        width = count + 1
        lines = text.count("\n") + 1
        if len(words) != lines * width or words[count::width] != ["\0"] * lines:
            return None
        return [words[column::width] for column in range(count)]

    def lines(self, skip: Skip | None = None) -> Iterator[Line]:
        """The lines, as `read_lines` yields them, without their positions in the file."""
        for number, raw in enumerate(io.BytesIO(self.raw), self.after_line + 1):
            if (skip is None or not skip(raw)) and (text := _decoded(self.path, number, raw)):
                yield Line(self.path, number, text)


class LineOrigins:
    """The file and line number of each row, in 8 bytes a row, since there are few files.

    numbers: an empty list that receives the line numbers. earlier: the number of rows before the first that
    is added, and a function that reads their lines again.
    """

    def __init__(
        self,
        numbers: SpilledNumbers | None = None,
        earlier: tuple[int, Callable[[], Iterator[Line]]] = (0, lambda: iter(())),
    ) -> None:
        self._numbers: array[int] | SpilledNumbers = array("q") if numbers is None else numbers
        self._earlier, self._lines = earlier
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
        if row < self._earlier:
            return next(islice(self._lines(), row, None))._replace(text="")
        row -= self._earlier
        return Line(self._paths[bisect_right(self._starts, row) - 1], self._numbers[row], "")


def json_id(line: Line, record: dict[str, Any], *keys: str) -> str:
    """The id under the first of `keys` that the record has.

    A JSON integer becomes its digits, as in Anserini.
    """
    value = next((record[key] for key in keys if key in record), None)
    if isinstance(value, bool) or not isinstance(value, str | int):
        cure = "give the record an id"
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


def read_lines(path: Path, skip: Skip | None = None, after_line: int = 0, at_byte: int = 0) -> Iterator[Line]:
    """Iterate over the lines that are not empty, and for which `skip`, given the line's bytes, is false.

    They begin after line `after_line`, which ends at byte `at_byte` of the (unpacked) text.

    A byte order mark and Windows line ends, even doubled, are removed. Raises ValueError, with the line, for
    bytes that are not text: another encoding, a NUL, a second byte order mark, a damaged .gz file. A skipped
    line counts, but is not decoded.
    """
    return (line for line in read_all_lines(path, skip, after_line, at_byte) if line.text)


def read_all_lines(
    path: Path, skip: Skip | None = None, after_line: int = 0, at_byte: int = 0
) -> Iterator[Line]:
    """Like `read_lines`, including empty lines."""
    number, start = after_line, at_byte
    try:
        with _opened(path) as (packed, file):
            if start:
                file.seek(start)
            for number, raw in enumerate(file, start=after_line + 1):
                end = start + len(raw)
                if skip is None or not skip(raw):
                    read_bytes = packed.tell() if file is not packed else end
                    yield Line(path, number, _decoded(path, number, raw), "", start, read_bytes, end)
                start = end
    except DAMAGE as error:
        raise damaged(path, number + 1, error) from error


def read_blocks(path: Path) -> Iterator[Block]:
    """Iterate over the lines block by block, for files of so many lines that each one's time counts.

    Raises ValueError for a damaged .gz file, as `read_lines` does, but before the last lines that could still
    be read.
    """
    number = start = 0
    try:
        with _opened(path) as (_, file):
            while raw := file.read(BLOCK_BYTES):
                raw += file.readline()
                yield Block(path, number, raw)
                number, start = number + raw.count(b"\n"), start + len(raw)
    except DAMAGE as error:
        for _ in read_all_lines(path, after_line=number, at_byte=start):
            pass  # raises at the damaged line
        raise damaged(path, number + 1, error) from error


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, io.BufferedReader | gzip.GzipFile]]:
    """The open file, and the one to read its text from, which unpacks a .gz file. Raises those of DAMAGE."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected a file")
    if path.suffix == ".gz" and not path.stat().st_size:
        raise EOFError("it is empty")  # gzip reads an empty file as a file without lines
    with (
        open(path, "rb") as packed,
        gzip.open(packed) if path.suffix == ".gz" else nullcontext(packed) as file,
    ):
        yield packed, file


def damaged(path: Path, number: int, error: Exception) -> ValueError:
    """The error to raise for a .gz file that cannot be read beyond a line."""
    return Line(path, number, "").error(
        f"damaged gzip file ({error})", "a whole .gz file", "copy or download it again"
    )


def _decoded(path: Path, number: int, raw: bytes) -> str:
    raw = raw.removesuffix(b"\n").rstrip(b"\r")
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\0" in raw:
        cure = "remove it, or convert the file, for example: iconv -f UTF-16 -t UTF-8 OLD > NEW"
        raise Line(path, number, "").error(f"a NUL byte at column {raw.index(0) + 1}", "UTF-8", cure)
    if raw.startswith(codecs.BOM_UTF8):
        # It is invisible, and would make an id a different id.
        raise Line(path, number, "").error(
            "a byte order mark", "at most one, at the start of the file", "remove its three bytes, EF BB BF"
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(path, number, error, f" at column {error.start + 1}") from error


def not_utf8(path: Path, number: int, error: UnicodeDecodeError, where: str = "") -> ValueError:
    """The error to raise for a line in another encoding."""
    near = shown(error.object[max(0, error.start - SHOWN_CHARACTERS // 2) :][: 2 * SHOWN_CHARACTERS])
    problem = f"byte 0x{error.object[error.start]:02x}{where} is not UTF-8, near {near}"
    return Line(path, number, "").error(
        problem, "UTF-8", "convert the file, for example: iconv -f LATIN1 -t UTF-8 OLD > NEW"
    )


def names_of_file(path: Path) -> tuple[Path, Path]:
    """The path, and the same one with or without .gz."""
    path = path.expanduser()
    return path, path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".gz")


def find_file(path: Path, key: str) -> Path:
    """The file itself, or the same file with or without .gz; `key` is its recipe key.

    Raises FileNotFoundError with the paths that were tried.
    """
    path, other = names_of_file(path)
    for candidate in (path, other):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        f"no file {path}, nor {other}; set `{key}` in the recipe, or {key}=PATH on the command line "
        f"(relative paths start at the working directory, now {Path.cwd()})"
    )


def extension(path: Path) -> str:
    """The extension of the unpacked file: `.tsv` for `queries.tsv.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix


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
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def shown(value: Any) -> str:
    """A value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
