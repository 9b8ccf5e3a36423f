"""Text files, plain or .gz: found by name, read by lines.

Errors name the file, the line number and the cure.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pyserini_ance.data.formats.lines import SHOWN_CHARACTERS, Line, shown

DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)
# The first bytes of compressed files, and what unpacks them.
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "unzip",
}


def read_lines(path: Path) -> Iterator[Line]:
    """Iterate over the lines that are not empty.

    A byte order mark and Windows line ends, even doubled, are removed. Raises ValueError, with the line, for
    bytes that are not text: another encoding, a NUL, a second byte order mark, a damaged .gz file.
    """
    return (line for line in read_all_lines(path) if line.text)


def read_all_lines(path: Path) -> Iterator[Line]:
    """Like `read_lines`, including empty lines."""
    number = 0
    try:
        with open_bytes(path) as file:
            for number, raw in enumerate(file, start=1):
                yield Line(path, number, _decoded(path, number, raw))
    except DAMAGE as error:
        raise damaged(path, number + 1, error) from error


def open_bytes(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open a file to read its bytes, unpacked if its name ends in .gz. Reading may raise one of DAMAGE."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected a file")
    if path.suffix != ".gz":
        return open(path, "rb")
    if not path.stat().st_size:
        raise EOFError("it is empty")  # gzip reads an empty file as a file without lines
    return gzip.open(path)


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
        raise _not_text(path, number, "a NUL byte", cure)
    if raw.startswith(codecs.BOM_UTF8):
        # It is invisible, and would make an id a different id.
        raise Line(path, number, "").error(
            "a byte order mark", "at most one, at the start of the file", "remove its three bytes, EF BB BF"
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        near = shown(raw[max(0, error.start - SHOWN_CHARACTERS // 2) :][: 2 * SHOWN_CHARACTERS])
        problem = f"byte 0x{raw[error.start]:02x} is not UTF-8, near {near}"
        cure = "convert the file, for example: iconv -f LATIN1 -t UTF-8 OLD > NEW"
        raise _not_text(path, number, problem, cure) from error


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
