"""Strings on disk, read through a memory map: processes share its pages, and none holds them as Python objects."""

import mmap
from collections.abc import Iterator, Sequence
from itertools import batched, pairwise
from pathlib import Path

import numpy as np

from pyserini_ance.data.arrays import ArrayFile
from pyserini_ance.storage.files import BlockFile

STRINGS_PER_BLOCK = 4096


class Strings(Sequence[str]):
    """Read-only: string i is `text[offsets[i]:offsets[i + 1]]` in UTF-8.

    text: (T,) uint8; offsets: (N + 1,) int64.
    """

    def __init__(self, text: np.ndarray, offsets: np.ndarray):
        self.text, self.offsets = text, offsets
        # Single items and slices of these cost a tenth of a memory map's.
        self._text, self._offsets = memoryview(text), memoryview(offsets)

    @classmethod
    def open(cls, path: Path) -> "Strings":
        """Written by `write_strings` under the same path."""
        text, offsets = _files(path)
        mapped = np.memmap(text, np.uint8, "r") if text.stat().st_size else np.empty(0, np.uint8)  # no map of nothing
        return cls(mapped, np.load(offsets, mmap_mode="r", allow_pickle=False))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row):
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        return str(self.encoded(row), "utf-8")

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), STRINGS_PER_BLOCK):
            bounds = self._offsets[start : start + STRINGS_PER_BLOCK + 1].tolist()
            yield from [str(self._text[here:end], "utf-8") for here, end in pairwise(bounds)]

    def release(self) -> None:
        """Give back what reading has mapped so far: else a process that reads all strings counts all their bytes as its own."""
        for array in (self.text, self.offsets):
            if isinstance(array.base, mmap.mmap):
                array.base.madvise(mmap.MADV_DONTNEED)

    def encoded(self, row: int) -> memoryview:
        """The UTF-8 bytes of a string, not copied."""
        row = range(len(self))[row]  # counts from the end where negative, and refuses what is not there
        return self._text[self._offsets[row] : self._offsets[row + 1]]


class StringsFile:
    """Strings that are written block by block: two files that start with `path`, the text and the offsets."""

    def __init__(self, path: Path):
        text, offsets = _files(path)
        self._text, self._offsets, self._written = BlockFile(text, 0), ArrayFile(offsets, np.int64), 0
        self._offsets.append(np.zeros(1, np.int64))

    def append(self, encoded: Sequence[bytes]) -> None:
        """The next strings, in UTF-8."""
        ends = self._written + np.cumsum([len(one) for one in encoded], dtype=np.int64)
        self._text.write_at(self._written, b"".join(encoded))
        self._offsets.append(ends)
        self._written = int(ends[-1])

    def close(self) -> None:
        self._text.close()
        self._offsets.close()


def write_strings(path: Path, strings: Sequence[str]) -> None:
    """Write two files that start with `path`: the text, and the offsets."""
    out = StringsFile(path)
    try:
        for block in batched(strings, STRINGS_PER_BLOCK):
            out.append([string.encode() for string in block])
    finally:
        out.close()


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.utf8"), path.with_name(f"{path.name}.offsets.npy")
