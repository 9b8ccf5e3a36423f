"""Small durable writes: a file is replaced whole, and a full disk is an error, never a half-written file."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pyserini_ance.storage.beside import beside

BLOCK_BYTES = 1 << 22
ESTALE_TRIES = 5


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError inside name `path`: the system names no file when a write fails, and a hidden one when an open does."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename == str(path):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` beside `path`, sync it, and rename it into place: readers see the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    unfinished = beside(path, "tmp")
    with naming(path):
        try:
            with open(unfinished, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)


def copy_whole(source: Path, path: Path) -> None:
    """A file of its own with the same content, as `write_whole` leaves it, however large."""
    unfinished = beside(path, "tmp")
    with naming(path):
        try:
            shutil.copyfile(source, unfinished)
            sync(unfinished)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that is there. Raises FileNotFoundError without the file, RuntimeError when it is anything else."""
    value = read_json_object(path)
    if value is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return value


def read_json_object(path: Path) -> dict[str, Any] | None:
    """A JSON object that others replace whole; None without the file. Raises RuntimeError when it is anything else."""
    data = _read_current(path)
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RuntimeError(f"{path} was damaged: found {data[:40]!r} ({len(data)} bytes), expected one JSON object; restore or remove it")
    return value


def _read_current(path: Path) -> bytes | None:
    for attempt in range(1, ESTALE_TRIES + 1):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:  # NFS: another host replaced the file between the opening and the reading
            if error.errno != errno.ESTALE or attempt == ESTALE_TRIES:
                raise


def append_json_line(path: Path, value: Any, durable: bool = False) -> None:
    """Append one JSON line; `durable` waits until the disk has it. A last line that a crash cut short is removed first."""
    with naming(path), open(path, "ab+") as file:
        _drop_cut_line(file)
        file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())


def read_json_lines(path: Path) -> list[dict]:
    """All complete lines; a last line that a crash cut short is left out. A missing file has no lines.

    Raises RuntimeError naming the line that is no JSON.
    """
    if not path.exists():
        return []
    with open(path, "rb") as file:
        return [_json_of_line(path, number, line) for number, line in enumerate(file, start=1) if line.endswith(b"\n")]


def _json_of_line(path: Path, number: int, line: bytes) -> dict:
    try:
        return json.loads(line)
    except ValueError as error:
        raise RuntimeError(f"{path}:{number}: expected one JSON object, found {line[:40]!r}; restore the file, or remove the line") from error


def _drop_cut_line(file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def sync(path: Path) -> None:
    """Ask the disk to hold what was written to a file or to a folder's list of names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class BlockFile:
    """A file of known size that is filled by positioned writes, in any order.

    The size is reserved first (`posix_fallocate`) and blocks go through `pwrite`, so that a full disk raises
    OSError at a defined place; writing through a memory map would end the process with SIGBUS.
    """

    def __init__(self, path: Path, size_bytes: int):
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if size_bytes:
                with naming(path):
                    os.posix_fallocate(self._handle, 0, size_bytes)
        except OSError:
            os.close(self._handle)
            raise

    def write_at(self, offset_bytes: int, data: memoryview | bytes) -> None:
        view = memoryview(data).cast("B")
        with naming(self.path):
            while len(view):
                written = os.pwrite(self._handle, view[:BLOCK_BYTES], offset_bytes)
                view, offset_bytes = view[written:], offset_bytes + written

    def sync(self) -> None:
        """Return when the disk has what was written."""
        with naming(self.path):
            os.fsync(self._handle)

    def close(self) -> None:
        os.fsync(self._handle)
        os.close(self._handle)
