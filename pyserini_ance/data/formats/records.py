"""Records of files: JSON objects, and the rows of CSV, TSV, JSON and parquet files with named columns.

A JSON file is either one list, which is read piece by piece (DPR's files are larger than memory), or has one
object per line. Values of text files stay as they are written, unlike in pandas and Arrow: 007 is not 7, NA
is not a missing value, and 2020-01-01 is not a date.
"""

import codecs
import csv
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.lines import BEYOND, SHOWN_CHARACTERS, Line, shown
from pyserini_ance.data.formats.text_files import (
    DAMAGE,
    damaged,
    extension,
    not_utf8,
    read_all_lines,
    read_lines,
)

PIECE_BYTES = 1 << 20
LONGEST_TOKEN = 16  # the longest token of JSON itself: a name such as -Infinity, a \u escape, an exponent
DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON = (".json", ".jsonl")
PARQUET = ".parquet"
EXTENSIONS = (PARQUET, *JSON, *DELIMITERS)

Row = tuple[Line, dict[str, Any]]

_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def read_records(path: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Iterate over the objects of a JSON list, or of a file with one object per line.

    Each object comes with the line at which it starts, without the line's text.
    """
    if is_list(path):
        yield from read_list(path)
    else:
        for line in read_lines(path):
            yield line._replace(text=""), line.json()


def is_list(path: Path) -> bool:
    """Whether the file is a JSON list, not one object per line."""
    return _JsonText(path).next() == "["


def read_list(path: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Iterate over the objects of a JSON list.

    Each object comes with the line at which it starts, without the line's text. Raises ValueError, with the
    line, for anything other than one complete list of objects.
    """
    unread = _JsonText(path)
    unread.take("[")
    if unread.next() == "]":
        unread.take("]")
    else:
        for item in count(1):
            yield unread.take_object(item)
            if unread.take(",]") == "]":
                break
    unread.take("")


class _JsonText:
    """The text of a JSON file that is not parsed yet.

    It consists of `text` from `position` on, which is in line `number`, and of what `pieces` will yield.
    """

    def __init__(self, path: Path):
        self.path, self.text, self.position, self.number = path, "", 0, 1
        self.pieces = self._pieces()

    def next(self) -> str:
        """The next character that is not blank; "" at the end of the file."""
        while True:
            self._go_to(_end_of_blanks(self.text, self.position))
            if self.position < len(self.text) or not self._read_on():
                return self.text[self.position : self.position + 1]

    def take(self, allowed: str) -> str:
        """Consume the next character that is not blank, one of `allowed` ("": the end of the file)."""
        character = self.next()
        if not ((character and character in allowed) or character == allowed):
            expected = " or ".join(map(repr, allowed)) or "the end of the file"
            raise self._error(f"{self._near(self.position)} in a JSON list", expected, self.position)
        self._go_to(self.position + len(character))
        return character

    def take_object(self, item: int) -> Row:
        """Consume the next object, which is number `item` of the list."""
        if self.next() != "{":
            raise self._error(
                f"{self._near(self.position)} as item {item} of a JSON list", "a JSON object", self.position
            )
        line = Line(self.path, self.number, "", f", item {item}")
        while True:
            try:
                record, end = _DECODER.raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                if not self._may_be_incomplete(error) or not self._read_on():
                    near = self._near(error.pos - SHOWN_CHARACTERS // 2)
                    problem = f"malformed JSON in item {item} ({error.msg}) near {near}"
                    raise self._error(problem, "a JSON object", error.pos) from error
            except BEYOND as error:
                raise self._error(
                    f"JSON that cannot be read ({error}) in item {item}", "a JSON object", self.position
                ) from error
            else:
                self._go_to(end)
                return line, record

    def _may_be_incomplete(self, error: json.JSONDecodeError) -> bool:
        """Whether the error may only be due to the end of the text that was read so far."""
        return error.msg.startswith("Unterminated string") or error.pos > len(self.text) - LONGEST_TOKEN

    def _go_to(self, position: int) -> None:
        self.number += self.text.count("\n", self.position, position)
        self.position = position

    def _read_on(self) -> bool:
        piece = next(self.pieces, "")
        if piece:
            self.text, self.position = self.text[self.position :] + piece, 0
        return bool(piece)

    def _pieces(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            with (gzip.open if self.path.suffix == ".gz" else open)(self.path, "rb") as file:
                # Read as much as is held already, so that an object of any size is parsed only a few times.
                while raw := file.read(max(PIECE_BYTES, len(self.text) - self.position)):
                    if piece := decoder.decode(raw):  # empty if a character is still incomplete
                        yield piece
            yield decoder.decode(b"", final=True)
        except DAMAGE as error:
            raise damaged(self.path, self.number, error) from error
        except UnicodeDecodeError as error:
            held = self.text.count("\n", self.position) + error.object.count(b"\n", 0, error.start)
            raise not_utf8(self.path, self.number + held, error) from error

    def _near(self, position: int) -> str:
        start = max(position, self.position)
        return (
            shown(self.text[start : start + 2 * SHOWN_CHARACTERS])
            if start < len(self.text)
            else "the end of the file"
        )

    def _error(self, problem: str, expected: str, position: int) -> ValueError:
        number = self.number + self.text.count("\n", self.position, position)
        return Line(self.path, number, "").error(
            problem, expected, "correct the file, or write it again as one JSON list"
        )


def _end_of_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    assert blanks is not None  # the pattern also matches nothing
    return blanks.end()


def is_supported(path: Path) -> bool:
    """Whether `read_named_rows` reads files of this extension; text files may be .gz."""
    return path.suffix == PARQUET or extension(path) in (*JSON, *DELIMITERS)


def read_named_rows(path: Path, columns: Sequence[str], key: str) -> Iterator[Row]:
    """Iterate over the rows of a file that `is_supported`. A column that a later JSON object lacks is null.

    Raises ValueError, before any row is returned, if the header or the first object lacks one of `columns`;
    `key` is the recipe key that defines them.
    """
    if path.suffix == PARQUET:
        rows = _parquet(path, columns)
    else:
        rows = _objects(path) if extension(path) in JSON else _table(path, DELIMITERS[extension(path)])
    header = next(rows)
    check_columns(columns, header, path, key)
    return rows


def check_columns(columns: Sequence[str], header: Sequence[str], path: Path | str, key: str) -> None:
    """Raise ValueError if the header lacks one of the columns that the recipe defines under `key`."""
    missing = [column for column in columns if column not in header]
    if missing:
        problem = f"{key}: {path} has no column {', '.join(missing)}; columns: {', '.join(header)}"
        raise ValueError(f"{problem[:1000]}; set the names of the columns under {key}")


def _objects(path: Path) -> Iterator[Any]:
    """Yield the keys of the first object, then the rows."""
    records = read_records(path)
    first = next(records, None)
    yield list(first[1]) if first else []
    yield from chain([first] if first else [], records)


def _table(path: Path, delimiter: str) -> Iterator[Any]:
    """Yield the header, then the rows. A quoted cell may hold line ends."""
    first = Line(path, 1, "")
    reader = csv.reader((f"{line.text}\n" for line in read_all_lines(path)), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        start = first._replace(number=reader.line_num + 1)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise start.error(
                f"{error}",
                "cells in double quotes, or without double quotes",
                "correct the line, or write the table as .jsonl",
            ) from error
        if cells is None:
            break
        if not cells:  # an empty line
            continue
        if header is None:
            header = _checked_header(start, cells)
            yield header
        else:
            _check_width(start, cells, header)
            yield start, dict(zip(header, cells, strict=True))
    if header is None:
        raise first.error("no header", "the names of the columns in the first line", "write them there")


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the header, then the rows with only these columns."""
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file.schema_arrow.names
            for batch in file.iter_batches(columns=list(columns)):
                for row in batch.to_pylist():
                    number += 1
                    yield Line(path, number, ""), row
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise Line(path, number + 1, "").error(
            f"a row that cannot be read ({error})", "a whole parquet file", "copy or download it again"
        ) from error


def _checked_header(line: Line, header: list[str]) -> list[str]:
    if len(set(header)) < len(header):
        raise line.error(
            f"a header {shown(header)}", "the names of the columns, each once", "correct the line"
        )
    return header


def _check_width(line: Line, cells: list[str], header: list[str]) -> None:
    if len(cells) != len(header):
        problem = f"{len(cells)} columns in {shown(cells)}"
        expected = f"{len(header)} as in the header: {', '.join(header)[:1000]}"
        raise line.error(problem, expected, "correct or delete the line")
