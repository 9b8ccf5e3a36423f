"""Lines of text files, plain or .gz; a bad line is refused with its file, its number and the cure."""

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SHOWN_CHARACTERS = 80


class Line(NamedTuple):
    """One line without its end, and where it stands: `number` counts from 1."""

    path: Path
    number: int
    text: str

    def error(self, found: str, expected: str, cure: str) -> ValueError:
        return ValueError(f"{self.path}, line {self.number}: {found}; expected {expected}; {cure}")

    def columns(self, names: Sequence[str], separator: str | None = "\t") -> list[str]:
        """The values of a table's row, none empty; without a separator, any run of blanks and tabs separates."""
        values = self.text.split(separator)
        if len(values) == len(names) and all(values) and not any(map(str.isspace, values)):
            return values
        empty = [name for name, value in zip(names, values, strict=False) if not value.strip()]
        found = f"empty {empty[0]}" if len(values) == len(names) else f"{len(values)} columns"
        by = "blanks or tabs" if separator is None else "one tab"
        raise self.error(
            f"{found} in {shown(self.text)}",
            f"{len(names)} columns separated by {by}: {', '.join(names)}",
            "correct or delete the line, or name a file of this layout",
        )

    def json(self) -> dict[str, Any]:
        """The line's one JSON object."""
        cure = "correct the line, or write the file again with one object a line"
        try:
            record = json.loads(self.text)
        except json.JSONDecodeError as error:
            near = shown(self.text[max(0, error.pos - SHOWN_CHARACTERS // 2) :])
            found = f"malformed JSON at column {error.colno} ({error.msg}) near {near}"
            raise self.error(found, "a JSON object", cure) from error
        if not isinstance(record, dict):
            raise self.error(f"JSON {type(record).__name__} {shown(self.text)}", "a JSON object", cure)
        return record


def json_id(line: Line, record: dict[str, Any], *keys: str) -> str:
    """The first of `keys` that the record has; a JSON integer is written out, as Anserini does."""
    value = next((record[key] for key in keys if key in record), None)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise line.error(f"id {shown(value)}", f"a string under {' or '.join(keys)}", "give the record an id")
    return str(value)


def json_text(line: Line, record: dict[str, Any], key: str) -> str:
    """The text under `key`; a key that is missing or null is an empty text."""
    value = record.get(key)
    if not isinstance(value, str | None):
        raise line.error(f"{key} {shown(value)}", "a string", f"write `{key}` as one string")
    return value or ""


def json_answers(line: Line, record: dict[str, Any], *keys: str) -> list[str] | None:
    """The list under the first of `keys` that the record has; None where it has none of them."""
    key = next((key for key in keys if record.get(key) is not None), None)
    if key is None:
        return None
    value = record[key]
    if not isinstance(value, list) or not all(isinstance(answer, str) for answer in value):
        raise line.error(f"{key} {shown(value)}", "a list of strings", f'write `{key}` as a list, such as ["1984"]')
    return value


def read_lines(path: Path) -> Iterator[Line]:
    """Lines that are not empty. A byte order mark and Windows line ends are dropped."""
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                text = _decoded(path, number, raw)
                if text:
                    yield Line(path, number, text)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        found = f"damaged gzip file ({error})"
        raise Line(path, number + 1, "").error(found, "a whole .gz file", "copy or download it again") from error


def _decoded(path: Path, number: int, raw: bytes) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        near = shown(raw[max(0, error.start - SHOWN_CHARACTERS // 2) :])
        found = f"byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8, near {near}"
        cure = "convert the file, for example: iconv -f LATIN1 -t UTF-8 OLD > NEW"
        raise Line(path, number, "").error(found, "UTF-8", cure) from error


def find_file(path: Path, key: str) -> Path:
    """The file itself, or the same with or without .gz; `key` is the recipe key that names it.

    Raises FileNotFoundError with the paths tried.
    """
    path = path.expanduser()
    other = path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    for candidate in (path, other):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        f"no file {path}, nor {other}; set `{key}` in the recipe, or on the command line {key}=PATH "
        f"(relative paths start at the working directory, now {Path.cwd()})"
    )


def shown(value: Any) -> str:
    """A value short enough for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
