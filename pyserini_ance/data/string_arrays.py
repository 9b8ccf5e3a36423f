"""Arrays and strings on disk, and the rows of strings: files that are written block by block and read through
memory maps.

Processes share the pages of a memory map, and no process holds the strings as Python objects. `RowsOfIds`
finds the row of an id with little memory, through 64-bit hashes of the ids."""

import hashlib
import io
import mmap
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np

from pyserini_ance.data.spilled_numbers import SpilledNumbers
from pyserini_ance.storage.files import BlockFile

STRINGS_PER_BLOCK = 4096
HASHES_PER_BLOCK = 1 << 18
NO_ROW = -1


class ArrayFile:
    """Write a one-dimensional .npy file block by block, so that the array is never in memory as a whole.

    The file equals what `np.save` writes for the concatenated blocks. It is valid only after `close`.
    length: the values that an earlier writer left in the file, after which this one continues.
    """

    def __init__(self, path: Path, kind: type[np.generic], length: int = 0):
        self.kind, self.length = np.dtype(kind), length
        header = _header(self.kind, length)
        self._at = len(header) + length * self.kind.itemsize
        self._file = BlockFile(path, 0)
        self._file.write_at(0, header)

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

    def sync(self) -> None:
        """Return when all values are on disk."""
        self._file.sync()


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
        """Open the files that `StringsFile` wrote under the same path."""
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
        release(self.text, self.offsets)

    def encoded(self, row: int) -> memoryview:
        """The UTF-8 bytes of a string, not copied. A negative row counts from the end.

        Raises IndexError for a row out of range.
        """
        row = range(len(self))[row]
        return self._text[self._offsets[row] : self._offsets[row + 1]]

    def encoded_block(self, start: int, end: int) -> list[bytes]:
        """The UTF-8 bytes of the strings from row `start` to row `end` or the last."""
        bounds = self._offsets[start : end + 1].tolist()
        return [bytes(self._text[begin:stop]) for begin, stop in pairwise(bounds)]


def release(*arrays: np.ndarray) -> None:
    """Give back the memory of the files that these arrays, or what they are slices of, are mapped from to
    read; the system keeps what it has room for."""
    for stored in arrays:
        mapped: Any = stored
        while isinstance(mapped, np.ndarray):
            mapped = mapped.base
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_DONTNEED)


class StringsFile:
    """Write strings block by block into two files whose names start with `path`: the text and the offsets.

    length: the strings that an earlier writer left in the files, after which this one continues.
    """

    def __init__(self, path: Path, length: int = 0):
        text, offsets = _files(path)
        self._written = text.stat().st_size if length else 0
        self._text = BlockFile(text, 0)
        self._offsets = ArrayFile(offsets, np.int64, length + 1 if length else 0)
        if not length:
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

    def sync(self) -> None:
        """Return when all strings are on disk."""
        self._text.sync()
        self._offsets.sync()


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.utf8"), path.with_name(f"{path.name}.offsets.npy")


class RowsOfIds(Mapping[str, int]):
    """A mapping from distinct ids to their rows: a sorted list of hashes on disk, verified against the ids.

    hashes: (N,) uint64, ascending; rows: (N,) int32, `rows[i]` is the row of the id with hash `hashes[i]`.
    """

    def __init__(self, ids: Strings, hashes: np.ndarray, rows: np.ndarray):
        self.ids, self.hashes, self.rows = ids, hashes, rows
        # Reading an item of a memoryview costs a tenth of reading it from a memory map.
        self._hashes, self._rows = memoryview(hashes), memoryview(rows)

    @classmethod
    def open(cls, path: Path, ids: Strings) -> "RowsOfIds":
        """Open the files that `write_rows` wrote under the same path."""
        hashes, rows = (np.load(file, mmap_mode="r", allow_pickle=False) for file in _lookup_files(path))
        return cls(ids, hashes, rows)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __getitem__(self, id: str) -> int:
        # Half a surrogate pair is never a stored id, but looking it up is not an error either.
        encoded = id.encode("utf-8", "surrogatepass")
        hashed = hash_of(encoded)
        position = bisect_left(self._hashes, hashed)
        while position < len(self._hashes) and self._hashes[position] == hashed:
            row = self._rows[position]
            if self.ids.encoded(row) == encoded:
                return row
            position += 1
        raise KeyError(id)


class RowsOfHashes:
    """A mapping from hashes to rows, counted from 0 in the order of arrival.

    It takes 14 to 20 bytes for each hash, where a dictionary takes 100. Two of 9 million ids share a hash
    with a probability of 2 in a million.
    """

    def __init__(self, slots: int = 1 << 10):
        self._hashes = array("Q")
        self._slots = array("i", [NO_ROW]) * slots  # a power of two; at most two thirds are occupied

    def __len__(self) -> int:
        return len(self._hashes)

    def row_of(self, hashed: int) -> int:
        """The row of a hash. A new hash is added and gets the length before the call."""
        slot = self._slot(hashed)
        if self._slots[slot] == NO_ROW:
            self._slots[slot] = len(self)
            self._hashes.append(hashed)
            if 3 * len(self) > 2 * len(self._slots):
                self._grow()
            return len(self) - 1
        return self._slots[slot]

    def _slot(self, hashed: int) -> int:
        """The slot that holds the row of the hash, or the free slot for it."""
        last = len(self._slots) - 1
        slot = hashed & last
        while (row := self._slots[slot]) != NO_ROW and self._hashes[row] != hashed:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        self._slots = array("i", [NO_ROW]) * (2 * len(self._slots))
        for row, hashed in enumerate(self._hashes):
            self._slots[self._slot(hashed)] = row


def hash_of(encoded: bytes) -> int:
    """A 64-bit hash that, unlike `hash`, is the same in every process."""
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")


def hashes_of(encoded: Iterable[bytes], count: int) -> np.ndarray:
    """(count,) uint64, the hashes of ids in UTF-8."""
    return np.fromiter(map(hash_of, encoded), np.uint64, count)


def write_rows(path: Path, hashes: SpilledNumbers) -> None:
    """Write the ascending hashes of ids and their rows into two files whose names start with `path`.

    The range of hashes is divided evenly, so that each part has about `hashes.in_memory` of them: they are
    spread evenly over the range. A part is selected from all hashes, sorted and written.
    """
    parts = -(-len(hashes) // hashes.in_memory)
    bounds = [(part << 64) // parts for part in range(parts)] + [1 << 64]
    with ExitStack() as files:
        hash_file, row_file = _lookup_files(path)
        out = ArrayFile(hash_file, np.uint64), ArrayFile(row_file, np.int32)
        for file in out:
            files.callback(file.close)
        for low, high in pairwise(bounds):
            for file, values in zip(out, _sorted_between(hashes, low, high - 1), strict=True):
                file.append(values)


def _sorted_between(hashes: SpilledNumbers, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """The ascending hashes from `first` to `last`, and their rows; rows of equal hashes ascend too."""
    selected, rows, start = [], [], 0
    for block in hashes.blocks():
        inside = np.flatnonzero((block >= np.uint64(first)) & (block <= np.uint64(last)))
        selected.append(block[inside])
        rows.append((inside + start).astype(np.int32))
        start += len(block)
    values, row_numbers = np.concatenate(selected), np.concatenate(rows)
    order = np.argsort(values, kind="stable")
    return values[order], row_numbers[order]


def first_repeat(ids: Strings, lookup: RowsOfIds) -> tuple[int, int] | None:
    """The first row whose id occurs again, and the row of its next occurrence; None if there is none."""
    repeats = (_repeat_from(position, ids, lookup) for position in _equal_to_next(lookup.hashes))
    return min(filter(None, repeats), default=None)


def _equal_to_next(hashes: np.ndarray) -> Iterator[int]:
    """The positions whose hash the next position has too."""
    for start in range(0, len(hashes), HASHES_PER_BLOCK):
        block = hashes[start : start + HASHES_PER_BLOCK + 1]
        yield from (np.flatnonzero(block[1:] == block[:-1]) + start).tolist()
        release(hashes)


def _repeat_from(position: int, ids: Strings, lookup: RowsOfIds) -> tuple[int, int] | None:
    """The row at a position of the sorted hashes, and the next row that has the same id."""
    row, hashed = int(lookup.rows[position]), lookup.hashes[position]
    for other in range(position + 1, len(lookup.hashes)):
        if lookup.hashes[other] != hashed:
            return None
        if ids.encoded(int(lookup.rows[other])) == ids.encoded(row):
            return row, int(lookup.rows[other])
    return None


def _lookup_files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.hashes.npy"), path.with_name(f"{path.name}.rows.npy")
