"""Lookup of rows by id with little memory, through 64-bit hashes of the ids."""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pyserini_ance.data.string_arrays import Strings

NO_ROW = -1


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
        hashes, rows = (np.load(file, mmap_mode="r", allow_pickle=False) for file in _files(path))
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
        while position < len(self) and self._hashes[position] == hashed:
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


def write_rows(path: Path, hashes: np.ndarray) -> None:
    """Write the ascending hashes of ids and their rows into two files whose names start with `path`."""
    order = np.argsort(hashes, kind="stable")
    for file, values in zip(_files(path), (hashes[order], order.astype(np.int32)), strict=True):
        np.save(file, values, allow_pickle=False)


def first_repeat(ids: Strings, lookup: RowsOfIds) -> tuple[int, int] | None:
    """The first row whose id occurs again, and the row of its next occurrence; None if there is none."""
    same = np.flatnonzero(lookup.hashes[1:] == lookup.hashes[:-1])
    repeats = (_repeat_from(int(position), ids, lookup) for position in same)
    return min(filter(None, repeats), default=None)


def _repeat_from(position: int, ids: Strings, lookup: RowsOfIds) -> tuple[int, int] | None:
    """The row at a position of the sorted hashes, and the next row that has the same id."""
    row, hashed = int(lookup.rows[position]), lookup.hashes[position]
    for other in range(position + 1, len(lookup.hashes)):
        if lookup.hashes[other] != hashed:
            return None
        if ids.encoded(int(lookup.rows[other])) == ids.encoded(row):
            return row, int(lookup.rows[other])
    return None


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.hashes.npy"), path.with_name(f"{path.name}.rows.npy")
