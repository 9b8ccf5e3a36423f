"""Records of files: JSON objects, and the rows of CSV, TSV, JSON and parquet files with named columns; and
the entries that they become.

A JSON file is either one list, which is read piece by piece (DPR's files are larger than memory), or has one
object per line. Values of text files stay as they are written, unlike in pandas and Arrow: 007 is not 7, NA
is not a missing value, and 2020-01-01 is not a date.
"""

import csv
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from pyserini_ance.data.formats import lines
from pyserini_ance.data.formats.lines import JSON, Line, extension, open_bytes, read_lines, shown

HEAD_BYTES = 1 << 16
NESTED = b"[" * 1_000  # of 100,000 lists in each other ijson would keep 25 GB
LIST_CURE = "correct the file, or write it again as one JSON list"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
EXTENSIONS = (PARQUET, *JSON, *DELIMITERS)

TEXT = {"text": "text"}
TITLE_AND_TEXT = {"title": "title", **TEXT}

Names = Mapping[str, str]  # the usual names of a column, separated by blanks, by what it is
_SEPARATORS = re.compile(r"[-_ ]+")
log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A document or query as it was read.

    All entries of one kind have the same fields; questions have `answers`. has_id: the file gives the id.
    """

    line: Line
    id: str
    fields: dict[str, str]
    answers: list[str] | None = None
    has_id: bool = True

    @property
    def label(self) -> str:
        """The entry in messages: its id, or, in files without ids, the beginning of its text."""
        return shown(self.id) if self.has_id else f"with the text {shown(' '.join(self.fields.values()))}"


class Record(NamedTuple):
    """A JSON object, or a table's row by the names of its columns, and the line that it was read from."""

    line: Line
    values: dict[str, Any]

    @classmethod
    def of(cls, line: Line) -> "Record":
        return cls(line._replace(text=""), line.json())

    def entry(
        self, id: str, fields: Mapping[str, str] = TITLE_AND_TEXT, answers: Sequence[str] = ()
    ) -> Entry:
        """The entry of the record.

        fields: the key of each field; only a title may be missing. answers: keys, of which the first that the
        record has is read.
        """
        texts = {name: self.text(key, required=name != "title") for name, key in fields.items()}
        return Entry(self.line, id, texts, self.answers(*answers))

    def id(self, *keys: str) -> str:
        """The id under the first of `keys` that the record has.

        An integer becomes its digits, as in Anserini.
        """
        value = next((self.values[key] for key in keys if key in self.values), None)
        if not isinstance(value, str) and (isinstance(value, bool) or not isinstance(value, Integral)):
            cure = "write the id as a string or a whole number"
            if not any(key in self.values for key in keys):
                cure = f"rename one of its keys, {self._keys}, or set `data.kind` to its layout"
            raise self.line.error(f"id {shown(value)}", f"a string under {' or '.join(keys)}", cure)
        return str(value)

    def text(self, key: str, required: bool = True) -> str:
        """The text under `key`; empty if it is null, or if the key is missing and not required."""
        if required and key not in self.values:
            raise self.without_text(f"`{key}`", "set `data.kind` to its layout")
        value = self.values.get(key)
        if not isinstance(value, str | None):
            raise self.line.error(f"{key} {shown(value)}", "a string", f"write `{key}` as one string")
        return value or ""

    def answers(self, *keys: str) -> list[str] | None:
        """The list under the first of `keys` that the record has; None if it has none of them."""
        key = next((key for key in keys if self.values.get(key) is not None), None)
        if key is None:
            return None
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(answer, str) for answer in value):
            cure = f'write `{key}` as a list, such as ["1984"]'
            raise self.line.error(f"{key} {shown(value)}", "a list of strings", cure)
        return value

    def without_text(self, keys: str, other_cure: str) -> ValueError:
        """The error to raise for a record whose text is under none of `keys`."""
        cure = f"rename the key of its text, or {other_cure}"
        return self.line.error(f"a record with the keys {self._keys}", f"its text under {keys}", cure)

    @property
    def _keys(self) -> str:
        return shown(", ".join(map(str, self.values)))


def read_records(path: Path) -> Iterator[Record]:
    """Iterate over the objects of a JSON list, or of a file with one object per line.

    Each object comes with its line, or its item of the list, without the text. Raises ValueError, with the
    line or item, for anything other than one complete list of objects, or an object in each line.
    """
    if is_list(path):
        for line, record in _list(path):
            if not isinstance(record, dict):
                raise line.error(shown(record), "a JSON object", LIST_CURE)
            yield Record(line, record)
    else:
        yield from map(Record.of, read_lines(path))


def is_list(path: Path) -> bool:
    """Whether the file is a JSON list, not one object per line."""
    try:
        with open_bytes(path) as file:
            return file.read(HEAD_BYTES).lstrip().startswith(b"[")
    except lines.DAMAGE as error:
        raise lines.damaged(Line(path, 0, ""), error) from error


def _list(path: Path) -> Iterator[tuple[Line, Any]]:
    import ijson

    repeated: list[tuple[dict[str, Any], str]] = []  # objects with a key that they repeat

    class Object(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            if key in self:  # an error here would come before the items that ijson has read with this one
                repeated.append((self, key))
            super().__setitem__(key, value)

    def read(size: int) -> bytes:
        if NESTED in (block := file.read(size)):
            raise ValueError(f"{len(NESTED):,} lists in each other")
        return block

    line = Line(path, 0, "", "item")
    try:
        with open_bytes(path) as file:
            items = ijson.items(SimpleNamespace(read=read), "item", map_type=Object, use_float=True)
            for item, record in enumerate(items, start=1):
                for holder, key in repeated:
                    if _holds(record, holder):
                        raise ValueError(f"the key {shown(key)} is repeated")
                line = line._replace(number=item)
                yield line, record
    except lines.DAMAGE as error:
        raise lines.damaged(line, error) from error
    except (ijson.JSONError, *lines.BEYOND) as error:
        text = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        reason, _, near = text.partition("\n")
        problem = f"malformed JSON ({reason})"
        if near:
            problem += f" near {shown(near.partition(chr(10))[0].strip())}"
        expected = "a JSON object with each key once"
        raise line._replace(number=line.number + 1).error(problem, expected, LIST_CURE) from error


def _holds(value: Any, inner: dict[str, Any]) -> bool:
    """Whether `inner` is a JSON value, or in it."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is inner or any(_holds(one, inner) for one in values)


def read_named_rows(path: Path, columns: Sequence[str], key: str) -> Iterator[Record]:
    """Iterate over the rows of a file of EXTENSIONS, or of one with tabs between columns.

    Raises ValueError, before any row is returned, if the header or the first object lacks one of `columns`;
    `key` is the recipe key that defines them. Spreadsheets of some languages write `;` in .csv files.
    """
    if extension(path) == PARQUET:
        rows = _parquet(path, columns)
    elif extension(path) in JSON:
        rows = _objects(path)
    else:
        delimiter = DELIMITERS.get(extension(path), "\t")
        header = next(read_lines(path), Line(path, 1, "")).text
        rows = _table(path, ";" if delimiter == "," not in header and ";" in header else delimiter)
    check_columns(columns, next(rows, []), path, key)
    return rows


def check_columns(columns: Sequence[str], header: Sequence[str], path: Path | str, key: str) -> None:
    """Raise ValueError if the header lacks one of the columns that the recipe defines under `key`."""
    if missing := [column for column in columns if column not in header]:
        problem = f"{key}: {path} has no column {', '.join(missing)}; columns: {', '.join(header)}"
        raise ValueError(f"{problem[:1000]}; set the names of the columns under {key}.columns")


def _objects(path: Path) -> Iterator[Any]:
    """Yield the keys of the first object, then the rows."""
    for index, record in enumerate(read_records(path)):
        if index == 0:
            yield list(record.values)
        yield record


def _table(path: Path, delimiter: str) -> Iterator[Any]:
    """Yield the header, then the rows. A quoted cell may hold line ends.

    In a .tsv a warning says so: there a quote is often part of the text, and takes the next rows along.
    """
    reader = csv.reader(
        (f"{line.text}\n" for line in read_lines(path, keep_empty=True)), delimiter=delimiter, strict=True
    )
    header: list[str] = []
    start = Line(path, 1, "")
    first, count = "", 0
    try:
        for cells in reader:
            if delimiter == "\t" and reader.line_num > start.number:
                first, count = first or start.place, count + 1
            if cells and not header:
                if repeated := next((name for name in cells if name and cells.count(name) > 1), ""):
                    cure = "rename or delete the others"
                    raise start.error(f"several columns {shown(repeated)}", "one of a name", cure)
                yield (header := cells)
            elif cells and len(cells) != len(header):
                problem = f"{len(cells)} columns in {shown(cells)}"
                expected = f"{len(header)} as in the header: {', '.join(header)[:1000]}"
                raise start.error(problem, expected, "correct or delete the line")
            elif cells:  # not an empty line
                yield Record(start, dict(zip(header, cells, strict=True)))
            start = start._replace(number=reader.line_num + 1)
        if count:
            cure = "if the quote is part of the text, write the table as .csv or .jsonl"
            log.warning("%s: a quote begins a cell of several lines (rows: %d); %s", first, count, cure)
    except csv.Error as error:
        expected = "cells in double quotes, or without double quotes"
        raise start.error(f"{error}", expected, "correct the line, or write the table as .jsonl") from error


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
                    yield Record(Line(path, number, ""), row)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise Line(path, number + 1, "").error(
            f"a row that cannot be read ({error})", "a whole parquet file", "copy or download it again"
        ) from error


def read_table(
    path: Path, names: Names, needed: Sequence[str], key: str, unread: set[str]
) -> Iterator[tuple[Line, dict[str, str]]]:
    """Each record of a file (JSONL, JSON, CSV, TSV, parquet) as strings by what they are; null is "".

    names: what is read, and the names that its column may have, compared without case, `-`, `_` and blanks.
    A record without a column lacks it. unread: gets the names of other columns.

    Raises ValueError, with file and line, if a record lacks what is `needed`, or a value is neither a string
    nor a whole number; `key` names the argument.
    """

    def find(keys: Sequence[str], line: Line) -> dict[str, str]:
        found = found_columns(keys, names)
        unread.update({*keys} - {*found.values()})
        if missing := [what for what in needed if what not in found]:
            expected = f"a column of {missing[0]}: {names[missing[0]].replace(' ', ', ')}"
            raise line.error(f"columns {shown(', '.join(keys))}", expected, "rename the column")
        return found

    columns: list[str] = []
    if extension(path) == PARQUET:
        columns = list(find(next(_parquet(path, ())), Line(path, 1, "")).values())
    keys: list[str] | None = None
    found: dict[str, str] = {}
    for record in read_named_rows(path, columns, key):
        if list(record.values) != keys:  # objects of JSON may differ
            keys = list(record.values)
            found = find(keys, record.line if extension(path) in JSON else Line(path, 1, ""))
        for column, value in record.values.items():  # pandas makes a float of a grade beside an empty one
            if isinstance(value, float) and value.is_integer():
                record.values[column] = int(value)
        texts = {
            what: record.id(column) if isinstance(record.values[column], int) else record.text(column)
            for what, column in found.items()
        }
        yield record.line, texts


def found_columns(header: Sequence[str], names: Names) -> dict[str, str]:
    """The columns of a header by what they are."""
    plain = {_SEPARATORS.sub("", name).lower(): name for name in header}
    known = {what: next((one for one in of.split() if one in plain), None) for what, of in names.items()}
    return {what: plain[one] for what, one in known.items() if one is not None}
