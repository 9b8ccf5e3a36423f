"""From ids to rows without a dictionary in memory: a sorted list of hashes on disk, checked against the ids."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
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


def write_rows(path: Path, ids: Sequence[str]) -> None:
    """Write two files that start with `path`: the hashes of `ids`, ascending, and the rows in their order."""
    hashes = np.fromiter((_hash(id.encode()) for id in ids), np.uint64, len(ids))
    order = np.argsort(hashes, kind="stable")
    for file, array in zip(_files(path), (hashes[order], order.astype(np.int32)), strict=True):
        np.save(file, array, allow_pickle=False)


def _hash(encoded: bytes) -> int:
    """The same in every process, unlike `hash`."""
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.hashes.npy"), path.with_name(f"{path.name}.rows.npy")
