"""Text files, plain or .gz: found by name, read by lines or by blocks of them.

Errors name the file, the line number and the cure.
"""

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from pyserini_ance.data.formats.lines import SHOWN_CHARACTERS, Line, shown

BLOCK_BYTES = 1 << 16  # of `read_blocks`: some 1,500 lines of a TREC run, in a processor's own cache
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)
# The first bytes of compressed files, and what unpacks them.
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "unzip",
}
BYTE_ORDER_MARK = "\ufeff"

Skip = Callable[[bytes], bool]


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
        raise _not_text(path, number, f"a NUL byte at column {raw.index(0) + 1}", cure)
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
    return _not_text(
        path, number, problem, "convert the file, for example: iconv -f LATIN1 -t UTF-8 OLD > NEW"
    )


def _not_text(path: Path, number: int, problem: str, cure: str) -> ValueError:
    """The error to raise for a line with this problem, whose cause may be a compressed file."""
    with open(path, "rb") as file:
        head = file.read(max(map(len, COMPRESSED)))
    unpacker = next((name for magic, name in COMPRESSED.items() if head.startswith(magic)), None)
    if unpacker is None or path.suffix == ".gz":  # a .gz file was unpacked already
        return Line(path, number, "").error(problem, "UTF-8", cure)
    cure = f"rename it to {path.name}.gz" if unpacker == "gzip" else f"unpack it with {unpacker}"
    return Line(path, 1, "").error("a compressed file", "text, or a .gz file that is named so", cure)


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
