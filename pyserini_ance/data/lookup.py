"""From ids to rows without a dictionary in memory: a sorted list of hashes on disk, checked against the ids; or hashes alone, as they come."""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pyserini_ance.data.strings import Strings

NO_ROW = -1


class RowsOfIds(Mapping[str, int]):
    """The row of each of `ids`, which are distinct.

    hashes: (N,) uint64, ascending; rows: (N,) int32, `rows[i]` the row of the id that has `hashes[i]`.
    """

    def __init__(self, ids: Strings, hashes: np.ndarray, rows: np.ndarray):
        self.ids, self.hashes, self.rows = ids, hashes, rows
        self._hashes, self._rows = memoryview(hashes), memoryview(rows)  # their items cost a tenth of a memory map's

    @classmethod
    def open(cls, path: Path, ids: Strings) -> "RowsOfIds":
        """Written by `write_rows` under the same path."""
        return cls(ids, *(np.load(file, mmap_mode="r", allow_pickle=False) for file in _files(path)))

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __getitem__(self, id: str) -> int:
        wanted = id.encode("utf-8", "surrogatepass")  # half a surrogate pair is no stored id, and no error either
        hashed = hash_of(wanted)
        place = bisect_left(self._hashes, hashed)
        while place < len(self) and self._hashes[place] == hashed:
            row = self._rows[place]
            if self.ids.encoded(row) == wanted:
                return row
            place += 1
        raise KeyError(id)


class RowsOfHashes:
    """The row of each hash, counted from 0 in the order in which they came: 14 to 20 bytes each, where a dictionary takes 100.

    Two of 9 million ids have one hash by a chance of 2 in a million.
    """

    def __init__(self, slots: int = 1 << 10):
        self._hashes = array("Q")
        self._slots = array("i", [NO_ROW]) * slots  # a power of two, at most two thirds of them taken

    def __len__(self) -> int:
        return len(self._hashes)

    def row_of(self, hashed: int) -> int:
        """Its row; `len` before the call where it comes for the first time."""
        slot = self._slot(hashed)
        if self._slots[slot] == NO_ROW:
            self._slots[slot] = len(self)
            self._hashes.append(hashed)
            if 3 * len(self) > 2 * len(self._slots):
                self._grow()
            return len(self) - 1
        return self._slots[slot]

    def _slot(self, hashed: int) -> int:
        """Where the row of the hash stands, or would."""
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
    """64 bits, the same in every process, unlike `hash`."""
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")


def hashes_of(encoded: Iterable[bytes], count: int) -> np.ndarray:
    """(count,) uint64, of ids in UTF-8."""
    return np.fromiter(map(hash_of, encoded), np.uint64, count)


def write_rows(path: Path, hashes: np.ndarray) -> None:
    """Write two files that start with `path`: the `hashes` of ids, ascending, and the rows in their order."""
    order = np.argsort(hashes, kind="stable")
    for file, values in zip(_files(path), (hashes[order], order.astype(np.int32)), strict=True):
        np.save(file, values, allow_pickle=False)


def first_repeat(ids: Strings, found: RowsOfIds) -> tuple[int, int] | None:
    """The first row whose id comes again, and where it does so first; None where all ids are distinct."""
    same = np.flatnonzero(found.hashes[1:] == found.hashes[:-1])
    repeats = (_repeat_from(int(place), ids, found) for place in same)
    return min(filter(None, repeats), default=None)


def _repeat_from(place: int, ids: Strings, found: RowsOfIds) -> tuple[int, int] | None:
    """The row at a place of the sorted list, and the next row of those with its hash that has its id."""
    row, hashed = int(found.rows[place]), found.hashes[place]
    for other in range(place + 1, len(found.hashes)):
        if found.hashes[other] != hashed:
            return None
        if ids.encoded(int(found.rows[other])) == ids.encoded(row):
            return row, int(found.rows[other])
    return None


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.hashes.npy"), path.with_name(f"{path.name}.rows.npy")
