"""Rows with named columns of a file: CSV, TSV, JSON objects, parquet.

Values of text files stay as they are written, unlike what pandas and Arrow make of them: 007 is not 7, NA is no missing value, and
2020-01-01 no date.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.lines import Line, extension, read_all_lines, shown
from pyserini_ance.data.formats.records import read_records

Row = tuple[Line, dict[str, Any]]
DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON = (".json", ".jsonl")
PARQUET = ".parquet"
EXTENSIONS = (PARQUET, *JSON, *DELIMITERS)


def is_read(path: Path) -> bool:
    """By its extension; texts may be .gz."""
    return path.suffix == PARQUET or extension(path) in (*JSON, *DELIMITERS)


def read_named_rows(path: Path, columns: Sequence[str], key: str) -> Iterator[Row]:
    """Each row of a file that `is_read`. A column that a later JSON object lacks is null in it.

    Raises ValueError, before any row is given, where the header, or the first object, lacks one of `columns`; `key` is the recipe key
    that names them.
    """
    if path.suffix == PARQUET:
        rows = _parquet(path, columns)
    else:
        rows = _objects(path) if extension(path) in JSON else _table(path, DELIMITERS[extension(path)])
    header = next(rows)
    refuse_missing(columns, header, path, key)
    return rows


def refuse_missing(columns: Sequence[str], there: Sequence[str], path: Path | str, key: str) -> None:
    lacking = [column for column in columns if column not in there]
    if lacking:
        found = f"{key}: {path} has no column {', '.join(lacking)}; columns: {', '.join(there)}"
        raise ValueError(f"{found[:1000]}; say under {key} which column is which")


def _objects(path: Path) -> Iterator[Any]:
    """The names of the first one's columns, then the rows."""
    records = read_records(path)
    first = next(records, None)
    yield list(first[1]) if first else []
    yield from chain([first] if first else [], records)


def _table(path: Path, delimiter: str) -> Iterator[Any]:
    """The header, then the rows; a quoted cell may hold line ends."""
    here = Line(path, 1, "")
    reader = csv.reader((f"{line.text}\n" for line in read_all_lines(path)), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        start = here._replace(number=reader.line_num + 1)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise start.error(f"{error}", "cells in double quotes, or without any", "correct the line, or write the table as .jsonl") from error
        if cells is None:
            break
        if header is None:
            header = _checked(start, cells)
            yield header
        elif cells:
            yield start, dict(zip(header, _as_many(start, cells, header), strict=True))
    if header is None:
        raise here.error("no header", "the names of the columns in the first line", "write them there")


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """The header, then the rows with these columns alone."""
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file.schema_arrow.names
            for batch in file.iter_batches(columns=list(columns)):
                for number, row in enumerate(batch.to_pylist(), start=number + 1):
                    yield Line(path, number, ""), row
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise Line(path, number + 1, "").error(f"a row that cannot be read ({error})", "a whole parquet file", "copy or download it again") from error


def _checked(line: Line, header: list[str]) -> list[str]:
    if not header or len(set(header)) < len(header):
        raise line.error(f"a header {shown(header)}", "the names of the columns, each once", "correct the line")
    return header


def _as_many(line: Line, cells: list[str], header: list[str]) -> list[str]:
    if len(cells) != len(header):
        found = f"{len(cells)} columns in {shown(cells)}"
        raise line.error(found, f"{len(header)} as in the header: {', '.join(header)[:1000]}", "correct or delete the line")
    return cells
