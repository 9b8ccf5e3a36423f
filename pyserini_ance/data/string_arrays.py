"""Arrays and strings on disk: files that are written block by block and read through memory maps.

Processes share the pages of a memory map, and no process holds the strings as Python objects.
"""

import io
import mmap
from collections.abc import Iterator, Sequence
from itertools import batched, pairwise
from pathlib import Path
from typing import overload

import numpy as np

from pyserini_ance.storage.files import BlockFile

STRINGS_PER_BLOCK = 4096


class ArrayFile:
    """Write a one-dimensional .npy file block by block, so that the array is never in memory as a whole.

    The file equals what `np.save` writes for the concatenated blocks. It is valid only after `close`.
    """

    def __init__(self, path: Path, kind: type[np.generic]):
        self.kind, self.length = np.dtype(kind), 0
        self._at = len(_header(self.kind, 0))
        self._file = BlockFile(path, 0)

    def append(self, block: np.ndarray) -> None:
        """Append a block of values."""
        data = np.ascontiguousarray(block, self.kind)
        self._file.write_at(self._at, data.tobytes())
        self._at, self.length = self._at + data.nbytes, self.length + len(data)

    def close(self) -> None:
        """Complete the file."""
        # numpy reserves space in the header for the longest array, so that all headers have the same size.
        self._file.write_at(0, _header(self.kind, self.length))
        self._file.close()


def _header(kind: np.dtype, length: int) -> bytes:
    out = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(out, about)
    return out.getvalue()


class Strings(Sequence[str]):
    """A read-only sequence of strings: string i is `text[offsets[i]:offsets[i + 1]]` in UTF-8.

    text: (T,) uint8; offsets: (N + 1,) int64.
    """

    def __init__(self, text: np.ndarray, offsets: np.ndarray):
        self.text, self.offsets = text, offsets
        # Reading an item or a slice of a memoryview costs a tenth of reading it from a memory map.
        self._text, self._offsets = memoryview(text), memoryview(offsets)

    @classmethod
    def open(cls, path: Path) -> "Strings":
        """Open the files that `write_strings` wrote under the same path."""
        text, offsets = _files(path)
        is_empty = text.stat().st_size == 0  # an empty file cannot be mapped
        mapped = np.empty(0, np.uint8) if is_empty else np.memmap(text, np.uint8, "r")
        return cls(mapped, np.load(offsets, mmap_mode="r", allow_pickle=False))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(len(self)))]
        return str(self.encoded(row), "utf-8")

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), STRINGS_PER_BLOCK):
            bounds = self._offsets[start : start + STRINGS_PER_BLOCK + 1].tolist()
            yield from [str(self._text[begin:end], "utf-8") for begin, end in pairwise(bounds)]

    def release(self) -> None:
        """Release the pages that reading has mapped so far.

        Otherwise all bytes that a process has read count as its memory.
        """
        for array in (self.text, self.offsets):
            if isinstance(array.base, mmap.mmap):
                array.base.madvise(mmap.MADV_DONTNEED)

    def encoded(self, row: int) -> memoryview:
        """The UTF-8 bytes of a string, not copied. A negative row counts from the end.

        Raises IndexError for a row out of range.
        """
        row = range(len(self))[row]
        return self._text[self._offsets[row] : self._offsets[row + 1]]


class StringsFile:
    """Write strings block by block into two files whose names start with `path`: the text and the offsets."""

    def __init__(self, path: Path):
        text, offsets = _files(path)
        self._text, self._offsets, self._written = BlockFile(text, 0), ArrayFile(offsets, np.int64), 0
        self._offsets.append(np.zeros(1, np.int64))

    def append(self, encoded: Sequence[bytes]) -> None:
        """Append strings that are encoded in UTF-8."""
        ends = self._written + np.cumsum([len(one) for one in encoded], dtype=np.int64)
        self._text.write_at(self._written, b"".join(encoded))
        self._offsets.append(ends)
        self._written = int(ends[-1])

    def close(self) -> None:
        """Complete both files."""
        self._text.close()
        self._offsets.close()


def write_strings(path: Path, strings: Sequence[str]) -> None:
    """Write two files whose names start with `path`: the text and the offsets."""
    out = StringsFile(path)
    try:
        for block in batched(strings, STRINGS_PER_BLOCK):
            out.append([string.encode() for string in block])
    finally:
        out.close()


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.utf8"), path.with_name(f"{path.name}.offsets.npy")
