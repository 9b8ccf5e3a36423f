"""Strings in an Arrow column, in memory or memory-mapped, and the rows at which they are."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS_PER_BATCH = 4096


class Strings(Sequence[str]):
    """A read-only sequence of strings in an Arrow column of type `large_string`."""

    def __init__(self, array: pa.ChunkedArray):
        self.array = array

    @classmethod
    def of(cls, values: Sequence[str]) -> "Strings":
        """The strings of any sequence."""
        if isinstance(values, Strings):
            return values
        return cls(pa.chunked_array([pa.array(values, pa.large_string())]))

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        return self.array[row].to_pylist() if isinstance(row, slice) else self.array[row].as_py()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ROWS_PER_BATCH):
            yield from self[start : start + ROWS_PER_BATCH]

    def rows_of(self, strings: Iterable[str]) -> np.ndarray:
        """(n,) int64: the row of each of n strings, -1 for one that is not there. All rows are read once."""
        # Half a surrogate pair, which is never a stored string, can be looked up as bytes.
        wanted = pa.array([string.encode("utf-8", "surrogatepass") for string in strings], pa.large_binary())
        distinct = wanted.dictionary_encode()
        matches = pc.index_in(self.array.cast(pa.large_binary()), value_set=distinct.dictionary)
        rows = np.flatnonzero(matches.is_valid().to_numpy())
        row_of = np.full(len(distinct.dictionary), -1)
        row_of[matches.drop_null().to_numpy()] = rows
        return row_of[distinct.indices.to_numpy()]

    def first_repeat(self) -> tuple[int, int] | None:
        """The first row whose string occurs again, and the row of its next occurrence; None without any."""
        order = pc.sort_indices(self.array)  # a stable sort
        ordered = self.array.take(order)
        repeats = np.flatnonzero(pc.equal(ordered[:-1], ordered[1:]).to_numpy())
        rows = order.to_numpy()
        return min(zip(rows[repeats].tolist(), rows[repeats + 1].tolist(), strict=True), default=None)


def add_strings(sha: "hashlib._Hash", array: pa.Array) -> None:
    """Add the lengths in bytes, int64, and the UTF-8 text of an array of type `large_string` to a hash."""
    _, offsets, text = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    sha.update(np.diff(bounds).tobytes())
    if text:
        sha.update(memoryview(text)[bounds[0] : bounds[-1]])
