"""Text files, plain or .gz, read by lines, and the values in a line.

Errors name the file, the line number and the cure.
"""

import codecs
import csv
import gzip
import io
import json
import os
import re
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

SHOWN_CHARACTERS = 80
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError)
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # as spreadsheets and editors of Windows write it
# json raises these, too, for numbers of thousands of digits and thousands of nested levels.
BEYOND = (ValueError, RecursionError)

_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,9})(\.0*)?")  # tables write 1.0
_SEPARATORS = re.compile('[-_ "]+')
JSON = (".json", ".jsonl", ".ndjson")

# What a column holds, by its name in the header of a table, without case and separators.
_ROLES = {
    "query": "q qid query queryid topic topicid question questionid",
    "document": "d did doc docid docno document documentid corpus corpusid pid passage passageid",
    "grade": "score relevance relevancescore rel label grade judgment",
    "other": "id iter iteration q0 rank tag run runid runname url title body text contents content answer "
    "answers querytext questiontext documenttext passagetext positive negative",
}
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names.split()}


def column_roles(names: Sequence[str]) -> list[str | None]:
    """What each column of a header holds: `query`, `document`, `grade` or `other`; None of another name."""
    return [_ROLE_OF.get(_SEPARATORS.sub("", name).lower()) for name in names]


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        key = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(key)} is repeated")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_each_once)


class Line(NamedTuple):
    """A line without its line end, and its position.

    number: counts from 1; 0 for a record that a caller passes, which `path` names as Python would select it.
    unit: what `number` counts: lines, or the items of a JSON list.
    """

    path: Path
    number: int
    text: str
    unit: str = "line"

    @property
    def place(self) -> str:
        """The position, for messages."""
        return f"{self.path}, {self.unit} {self.number}" if self.number else str(self.path)

    def error(self, problem: str, expected: str, cure: str) -> ValueError:
        if self.is_header():
            problem = f"{shown(self.text)} is a header"
            cure = cure if "delete the line" in cure else f"delete the line, or {cure}"
        if "\r" in self.text:
            cure += r"; if \r ends its lines, as on old Macs: tr '\r' '\n' < OLD > NEW"
        return ValueError(f"{self.place}: {problem}; expected {expected}; {cure}")

    def is_header(self) -> bool:
        """Whether the line has names of columns, at most one of them unknown, and no number."""
        for names in (self.text.split("\t"), self.text.split()):
            num_known = sum(role is not None for role in column_roles(names))
            if num_known >= max(2, len(names) - 1) and not any(map(str.isdigit, names)):
                return True
        return False

    def cells(
        self,
        names: Sequence[str],
        separator: str | None = "\t",
        is_quoted: bool = False,
        filled: bool = False,
    ) -> list[str]:
        """The values of a table row. Separator None means any run of blanks and tabs.

        is_quoted: values may be in double quotes, with inner quotes doubled, as in CSV files. filled: no
        value may be empty.
        """
        problem = ""
        try:
            values = self.text.split(separator)
            if is_quoted:
                [values] = csv.reader([self.text], delimiter="\t", strict=True)
            if len(values) != len(names):
                problem = f"{len(values)} columns"
            elif filled and not all(map(str.strip, values)):
                problem = "an empty column"
            elif self.number == 1 and all(column_roles(values)):
                problem = "names of columns"
        except csv.Error as error:
            problem = f"{error},"
        if problem:
            by = "blanks or tabs" if separator is None else "one tab"
            raise self.error(
                f"{problem} in {shown(self.text)}",
                f"{len(names)} columns separated by {by}: {', '.join(names)}",
                "correct or delete the line, or pass a file of this layout",
            )
        return values

    def json(self) -> dict[str, Any]:
        """The object of the line. Raises ValueError for anything else, and if an object repeats a key."""
        cure = "correct the line, or write the file again with one object per line"
        try:
            record = _DECODER.decode(self.text)
        except BEYOND as error:
            near = shown(self.text[max(0, getattr(error, "pos", 0) - SHOWN_CHARACTERS // 2) :])
            problem = f"malformed JSON ({error}) near {near}"
            raise self.error(problem, "a JSON object with each key once", cure) from error
        if not isinstance(record, dict):
            raise self.error(f"JSON {type(record).__name__} {shown(self.text)}", "a JSON object", cure)
        return record


class LineOrigins:
    """The file and line number of each row, in 8 bytes a row, since there are few files."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._files: list[tuple[int, Line]] = []  # the first row of each file

    def add(self, line: Line) -> None:
        if not self._files or line.path is not self._files[-1][1].path:
            self._files.append((len(self._numbers), line))
        self._numbers.append(line.number)

    def line(self, row: int) -> Line:
        """The line that a row was read from, without its text."""
        file = bisect_right(self._files, row, key=lambda pair: pair[0]) - 1
        return self._files[file][1]._replace(number=self._numbers[row], text="")


def grade_of(line: Line, value: Any, name: str = "grade", cure: str = "correct the line") -> int:
    """Parse a grade.

    Raises ValueError for numbers that tools read differently: digits of other scripts, underscores, more than
    32 bits.
    """
    match = _WHOLE_NUMBER.fullmatch(str(value).strip())  # of more characters than int() strips
    if not match:
        raise line.error(f"{name} {shown(value)}", "a whole number of at most nine digits", cure)
    return int(match[1])


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


def read_lines(path: Path, keep_empty: bool = False) -> Iterator[Line]:
    """Iterate over the lines, without empty ones unless they are kept.

    A byte order mark and Windows line ends, even doubled, are removed. Raises ValueError, with the line, for
    bytes that are not text: another encoding, a NUL, a second byte order mark, a damaged file.
    """
    line = Line(path, 0, "")
    try:
        with open_bytes(path) as file:
            for number, raw in enumerate(file, start=1):
                line = Line(path, number, "")
                if (text := _decoded(line, raw)) or keep_empty:
                    yield Line(path, number, text)
    except DAMAGE as error:
        raise damaged(line, error) from error


def open_bytes(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open a file to read its bytes after a byte order mark, unpacked if its name ends in .gz, and as UTF-8
    if the mark says that it is UTF-16. This or reading may raise one of DAMAGE."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected a file")
    is_packed = path.suffix.lower() == ".gz"
    if is_packed and not path.stat().st_size:
        raise EOFError("it is empty")  # gzip reads an empty file as a file without lines
    file = gzip.open(path) if is_packed else open(path, "rb")  # noqa: SIM115  # the caller closes it
    start = file.peek(len(codecs.BOM_UTF8))
    if start.startswith(codecs.BOM_UTF8):
        file.read(len(codecs.BOM_UTF8))
    if not start.startswith(UTF_16):
        return file
    with file:
        return io.BytesIO(file.read().decode("utf-16").encode())


def damaged(last: Line, error: Exception) -> ValueError:
    """The error to raise for a file, packed or in UTF-16, that cannot be read beyond a line."""
    after, kind = last._replace(number=last.number + 1), "UTF-16" if isinstance(error, ValueError) else "gzip"
    return after.error(f"damaged {kind} file ({error})", "a whole file", "copy or download it again")


def _decoded(line: Line, raw: bytes) -> str:
    raw = raw.removesuffix(b"\n").rstrip(b"\r")
    cure = "unpack or convert the file, for example: iconv -f LATIN1 -t UTF-8 OLD > NEW"
    if b"\0" in raw:
        raise line.error("a NUL byte, as in UTF-16", "UTF-8", cure.replace("LATIN1", "UTF-16"))
    if raw.startswith(codecs.BOM_UTF8):  # it is invisible, and would make an id a different id
        raise line.error("a byte order mark", "at most one, at the start of the file", "remove its 3 bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        near = shown(raw[max(0, error.start - SHOWN_CHARACTERS // 2) :][: 2 * SHOWN_CHARACTERS])
        raise line.error(f"byte 0x{raw[error.start]:02x}, near {near}", "UTF-8", cure) from error


def names_of_file(path: Path) -> tuple[Path, Path]:
    """The path, and the same one with or without .gz."""
    path = path.expanduser()
    is_packed = path.suffix.lower() == ".gz"
    return path, path.with_suffix("") if is_packed else path.with_name(path.name + ".gz")


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
    """The extension of the unpacked file in lower case: `.tsv` for `queries.TSV.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def files_in(folder: Path) -> list[Path]:
    """The files of a folder and of its folders, also of linked ones, in the order of their paths."""
    files = (Path(root, name) for root, _, names in os.walk(folder, followlinks=True) for name in names)
    return sorted(file for file in files if file.is_file())
