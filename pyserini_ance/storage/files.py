"""Small durable writes: a file is replaced whole, and a full disk is an error, never a half-written file."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

BLOCK_BYTES = 1 << 22


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` beside `path`, sync it, and rename it into place: readers see the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def append_json_line(path: Path, value: Any, durable: bool = False) -> None:
    """Append one JSON line; `durable` waits until the disk has it. A last line that a crash cut short is removed first."""
    with open(path, "ab+") as file:
        _drop_cut_line(file)
        file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())


def read_json_lines(path: Path) -> list[dict]:
    """All complete lines; a last line that a crash cut short is left out. A missing file has no lines."""
    if not path.exists():
        return []
    with open(path, "rb") as file:
        return [json.loads(line) for line in file if line.endswith(b"\n")]


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
                os.posix_fallocate(self._handle, 0, size_bytes)
        except OSError:
            os.close(self._handle)
            raise

    def write_at(self, offset_bytes: int, data: memoryview | bytes) -> None:
        view = memoryview(data).cast("B")
        while len(view):
            written = os.pwrite(self._handle, view[:BLOCK_BYTES], offset_bytes)
            view, offset_bytes = view[written:], offset_bytes + written

    def close(self) -> None:
        os.fsync(self._handle)
        os.close(self._handle)
