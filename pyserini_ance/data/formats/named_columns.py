"""Files of records whose columns have one of the usual names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyserini_ance.data.formats.lines import JSON, Line, extension, shown
from pyserini_ance.data.formats.records import PARQUET, read_named_rows

Names = Mapping[str, str]  # names separated by blanks
Row = tuple[Line, dict[str, str]]
_SEPARATORS = re.compile(r"[-_ ]+")


def read_table(
    path: Path, names: Names, needed: Sequence[str], key: str, unread: set[str] | None = None
) -> Iterator[Row]:
    """Each record of a file (JSONL, JSON, CSV, TSV, parquet) as strings by what they are; null is "".

    names: what is read, and the names that its column may have, compared without case, `-`, `_` and blanks.
    A record without a column lacks it. unread: gets the names of other columns, but of parquet.

    Raises ValueError, with file and line, if a record lacks what is `needed`, or a value is neither a string
    nor a whole number; `key` names the argument.
    """
    columns: list[str] = []
    if extension(path) == PARQUET:
        import pyarrow.parquet

        columns = list(found_columns(pyarrow.parquet.read_schema(path).names, names).values())
    keys: list[str] | None = None
    found: dict[str, str] = {}
    for record in read_named_rows(path, columns, key):
        if list(record.values) != keys:  # objects of JSON may differ
            keys = list(record.values)
            found = found_columns(keys, names)
            if unread is not None:
                unread |= {*keys} - {*found.values()}
            if missing := [what for what in needed if what not in found]:
                expected = f"a column of {missing[0]}: {names[missing[0]].replace(' ', ', ')}"
                line = record.line if extension(path) in JSON else Line(path, 1, "")
                raise line.error(f"columns {shown(', '.join(keys))}", expected, "rename the column")
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
