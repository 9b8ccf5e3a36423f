"""From ids to rows without a dictionary in memory: a sorted list of hashes on disk, checked against the ids."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from pyserini_ance.data.strings import Strings


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
        hashed = _hash(wanted)
        place = bisect_left(self._hashes, hashed)
        while place < len(self) and self._hashes[place] == hashed:
            row = self._rows[place]
            if self.ids.encoded(row) == wanted:
                return row
            place += 1
        raise KeyError(id)


def hashes_of(encoded: Iterable[bytes], count: int) -> np.ndarray:
    """(count,) uint64, of ids in UTF-8."""
    return np.fromiter(map(_hash, encoded), np.uint64, count)


def write_rows(path: Path, hashes: np.ndarray) -> None:
    """Write two files that start with `path`: the `hashes` of ids, ascending, and the rows in their order."""
    order = np.argsort(hashes, kind="stable")
    for file, array in zip(_files(path), (hashes[order], order.astype(np.int32)), strict=True):
        np.save(file, array, allow_pickle=False)


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


def _hash(encoded: bytes) -> int:
    """The same in every process, unlike `hash`."""
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.hashes.npy"), path.with_name(f"{path.name}.rows.npy")
