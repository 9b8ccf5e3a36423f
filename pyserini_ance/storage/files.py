"""Durable writes: files are replaced as a whole, and a full disk is an error, never half a file.

Whoever writes NAME holds the lock `.NAME.writing` and writes to `.NAME.unfinished`. Symbolic links are
followed. Pipes, devices and the streams of this process are written to, and never replaced.
"""

import errno
import gzip
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from pyserini_ance.storage.locks import LockHeld, locked

# A lock file `.NAME.<kind>`, and what a kill of its holder leaves, `.NAME.<leftover>`.
LEFTOVERS = {"writing": "unfinished", "reading": "removed", "held": None}
log = logging.getLogger(__name__)


def beside(path: Path, kind: str) -> Path:
    """The hidden name next to `path` for one of LEFTOVERS."""
    return path.with_name(f".{path.name}.{kind}")


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yield a hidden name next to `path` that no one else uses during the block; what has it then is removed.

    Another process that writes `path` is waited for.
    """
    with locked(beside(path, "writing"), what=str(path)):
        temporary = beside(path, "unfinished")
        remove(temporary)  # left by a process that was killed
        try:
            yield temporary
        finally:
            remove(temporary)


@contextmanager
def utf8_path(path: Path) -> Iterator[Path]:
    """Yield `path`, or a link to it if it is not UTF-8: libraries in Rust and C++ open no such names."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as folder:
            link = Path(folder, "link")
            link.symlink_to(path.absolute())
            yield link
    else:
        yield path


def remove(path: Path) -> None:
    """Remove a file or a folder that is not needed; log a warning when it cannot be removed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:  # on NFS a folder stays while a process of this host has one of its files open
        log.warning("%s is left over and can be removed by hand: %s", path, error)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed have left unfinished in `folder` and its subfolders.

    What lies inside an unfinished folder goes, or stays, with it: its writer may be at work.
    """
    for kind, leftover in LEFTOVERS.items():
        for ending in (kind, leftover or kind):  # what `remove` could not remove has no lock any more
            for path in [*folder.glob(f".*.{ending}"), *folder.glob(f"[!.]*/.*.{ending}")]:
                lock = path.with_suffix(f".{kind}")
                with suppress(LockHeld, FileNotFoundError, PermissionError), locked(lock, patience_seconds=0):
                    if leftover and (left := lock.with_suffix(f".{leftover}")).exists():
                        log.info("removing %s, left by a process that was killed", left)
                        remove(left)


@contextmanager
def path_in_errors(path: Path) -> Iterator[None]:
    """Put `path` into every OSError that is raised inside.

    The system names no file when a write fails, and the hidden temporary file when an open fails.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename == str(path):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def check_not_input(output: Path, inputs: Iterable[Path]) -> None:
    """Raise FileExistsError if `output` is one of the files `inputs`, which it would replace."""
    if output.exists() and any(path.exists() and output.samefile(path) for path in inputs):
        raise FileExistsError(f"{output} is an input, which would be replaced; pass another --output")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` to a temporary file next to `path`, sync it, and rename it to `path`.

    Readers see either the old file or the new one.
    """
    with whole_file(path) as file:
        file.write(_encoded(content) if isinstance(content, str) else content)


def _encoded(text: str) -> bytes:
    """UTF-8. The bytes of a path that are not UTF-8 become `\\udc..`, which JSON and YAML read again."""
    return text.encode(errors="backslashreplace")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to; at the end it becomes `path` with the guarantees of `write_whole`.

    A path that ends in .gz is compressed: by this name it is unpacked when it is read.
    """
    with path_in_errors(path), ExitStack() as stack:
        stream = standard_stream(path)
        if stream is not None:
            stream.flush()  # what was printed before comes first
            file = stack.enter_context(open(os.dup(stream.fileno()), "wb"))
        elif path.exists() and not path.is_file():  # a pipe or a device, which is written in place
            file = stack.enter_context(open(path, "wb"))
        else:
            file = stack.enter_context(open(stack.enter_context(_replacing(path)), "wb"))
        if path.suffix.lower() == ".gz":  # neither name nor time in it: equal texts are equal files
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield file


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield the name of a temporary file, which is synced and replaces `path`, or what `path` links to."""
    target = Path(os.path.realpath(path))
    with unfinished(target) as temporary:
        yield temporary
        sync(temporary)
        os.replace(temporary, target)


def standard_stream(path: Path) -> TextIO | None:
    """Standard output or error, if `path` is the same file, such as /dev/stdout or /dev/fd/2."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with suppress(OSError, ValueError):  # closed; or there is no file `path`
                if os.path.samestat(os.stat(path), os.fstat(stream.fileno())):
                    return stream
    return None


def copy_whole(source: Path, path: Path) -> None:
    """Copy `source` to `path` with the guarantees of `write_whole`, whatever its size."""
    with open(source, "rb") as original, whole_file(path) as file:
        shutil.copyfileobj(original, file)


def save_array(path: Path, array: Any) -> None:
    """Write a .npy file with the guarantees of `write_whole`. `np.save` writes by C's streams, which lose
    silently what a full disk does not take at their end."""
    import numpy as np

    array = np.asarray(array, order="C")
    with whole_file(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, as `write_whole` does."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def file_state(path: Path) -> list[int]:
    """What changes with the content of a file: its size, both times, and its number.

    Programs set the time of modification (`tar`, `rsync -t`); the time of change is the system's own.
    """
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises FileNotFoundError when the file is missing, RuntimeError when it does not hold one JSON object.
    """
    value = read_json_object(path)
    if value is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return value


def read_json_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object that other processes may replace; None when the file is missing.

    Raises RuntimeError when the file does not hold one JSON object.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RuntimeError(
            f"{path} was damaged: found {data[:40]!r} ({len(data)} bytes), expected one JSON object; "
            "restore or remove it"
        )
    return value


def append_json_line(path: Path, value: Any, durable: bool = False) -> None:
    """Append one JSON line; with `durable`, return only when it is on disk.

    A last line that a crash cut short is removed first.
    """
    with path_in_errors(path), open(path, "ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        if file.read(1) not in (b"", b"\n"):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        file.write(_encoded(json.dumps(value, ensure_ascii=False)) + b"\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())


def read_json_lines(path: Path) -> list[dict]:
    """Read all complete lines; a missing file has none, and a last line that a crash cut short is skipped.

    Raises RuntimeError with the number of the line that is not JSON.
    """
    records: list[dict] = []
    if not path.exists():
        return records
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                if line.endswith(b"\n"):
                    records.append(json.loads(line))
            except ValueError as error:
                raise RuntimeError(
                    f"{path}:{number}: expected one JSON object, found {line[:40]!r}; "
                    "restore the file, or remove the line"
                ) from error
    return records


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hex digest of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(_encoded(json.dumps(value, sort_keys=True, ensure_ascii=False))).hexdigest()


def sync(path: Path) -> None:
    """Flush a file's content, or a directory's list of names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reserve(path: Path, size_bytes: int) -> None:
    """Make a file of this size, so that a full disk is an error here, and not where it is filled."""
    with path_in_errors(path), open(path, "wb") as file:
        if size_bytes and hasattr(os, "posix_fallocate"):  # macOS meets a full disk later
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        file.truncate(size_bytes)
        os.fsync(file.fileno())


def write_at(path: Path, offset_bytes: int, data: memoryview | bytes) -> None:
    """Write into an existing file; return when the data is on disk."""
    with path_in_errors(path), open(path, "r+b") as file:
        file.seek(offset_bytes)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
