"""Records of files: JSON objects, and the rows of CSV, TSV, JSON and parquet files with named columns.

A JSON file is either one list, which is read piece by piece (DPR's files are larger than memory), or has one
object per line. Values of text files stay as they are written, unlike in pandas and Arrow: 007 is not 7, NA
is not a missing value, and 2020-01-01 is not a date.
"""

import codecs
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.lines import (
    BEYOND,
    DAMAGE,
    JSON,
    Line,
    damaged,
    extension,
    open_bytes,
    read_lines,
    repeated_key,
    shown,
)

HEAD_BYTES = 1 << 16
LIST_CURE = "correct the file, or write it again as one JSON list"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
EXTENSIONS = (PARQUET, *JSON, *DELIMITERS)

Row = tuple[Line, dict[str, Any]]


def read_records(path: Path) -> Iterator[Row]:
    """Iterate over the objects of a JSON list, or of a file with one object per line.

    Each object comes with its line, or its item of the list, without the text. Raises ValueError, with the
    line or item, for anything other than one complete list of objects, or an object in each line.
    """
    if is_list(path):
        for line, record in _list(path):
            if not isinstance(record, dict):
                raise line.error(shown(record), "a JSON object", LIST_CURE)
            yield line, record
    else:
        for line in read_lines(path):
            yield line._replace(text=""), line.json()


def is_list(path: Path) -> bool:
    """Whether the file is a JSON list, not one object per line."""
    try:
        with open_bytes(path) as file:
            return file.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
    except DAMAGE as error:
        raise damaged(Line(path, 0, ""), error) from error


def _list(path: Path) -> Iterator[Row]:
    import ijson

    repeated: list[tuple[dict[str, Any], str]] = []  # objects with a key that they repeat

    class Object(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            if key in self:  # an error here would come before the items that ijson has read with this one
                repeated.append((self, key))
            super().__setitem__(key, value)

    line = Line(path, 0, "", "item")
    try:
        with open_bytes(path) as file:
            if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                file.seek(0)
            items = ijson.items(file, "item", map_type=Object, use_float=True)
            for item, record in enumerate(items, start=1):
                for holder, key in repeated:
                    if _holds(record, holder):
                        raise repeated_key(key)
                line = line._replace(number=item)
                yield line, record
    except DAMAGE as error:
        raise damaged(line, error) from error
    except (ijson.JSONError, *BEYOND) as error:
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


def read_named_rows(path: Path, columns: Sequence[str], key: str) -> Iterator[Row]:
    """Iterate over the rows of a file of EXTENSIONS. A column that a later JSON object lacks is null.

    Raises ValueError, before any row is returned, if the header or the first object lacks one of `columns`;
    `key` is the recipe key that defines them.
    """
    if extension(path) == PARQUET:
        rows = _parquet(path, columns)
    else:
        rows = _objects(path) if extension(path) in JSON else _table(path, DELIMITERS[extension(path)])
    check_columns(columns, next(rows, []), path, key)
    return rows


def check_columns(columns: Sequence[str], header: Sequence[str], path: Path | str, key: str) -> None:
    """Raise ValueError if the header lacks one of the columns that the recipe defines under `key`."""
    if missing := [column for column in columns if column not in header]:
        problem = f"{key}: {path} has no column {', '.join(missing)}; columns: {', '.join(header)}"
        raise ValueError(f"{problem[:1000]}; set the names of the columns under {key}.columns")


def _objects(path: Path) -> Iterator[Any]:
    """Yield the keys of the first object, then the rows."""
    for index, (line, record) in enumerate(read_records(path)):
        if index == 0:
            yield list(record)
        yield line, record


def _table(path: Path, delimiter: str) -> Iterator[Any]:
    """Yield the header, then the rows. A quoted cell may hold line ends."""
    reader = csv.reader(
        (f"{line.text}\n" for line in read_lines(path, keep_empty=True)), delimiter=delimiter, strict=True
    )
    header: list[str] = []
    start = Line(path, 1, "")
    try:
        for cells in reader:
            if cells and not header:
                yield (header := cells)
            elif cells and len(cells) != len(header):
                problem = f"{len(cells)} columns in {shown(cells)}"
                expected = f"{len(header)} as in the header: {', '.join(header)[:1000]}"
                raise start.error(problem, expected, "correct or delete the line")
            elif cells:  # not an empty line
                yield start, dict(zip(header, cells, strict=True))
            start = start._replace(number=reader.line_num + 1)
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
                    yield Line(path, number, ""), row
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise Line(path, number + 1, "").error(
            f"a row that cannot be read ({error})", "a whole parquet file", "copy or download it again"
        ) from error
