"""Lists of numbers that memory cannot hold: the latest are in memory, the others in a temporary file."""

import os
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from pyserini_ance.storage.files import path_in_errors

NUMBER_BYTES = 8


class SpilledNumbers:
    """A list of 64-bit numbers that grows at its end; `in_memory` of them are in memory.

    kind: int64 or uint64. The others are in a file without a name in `folder`, which must exist by then; the
    system removes it when it is closed or the process ends.
    """

    def __init__(self, folder: Path, kind: type[np.int64] | type[np.uint64], in_memory: int):
        self._folder, self._kind, self.in_memory = folder, np.dtype(kind), in_memory
        self._latest = array("q" if kind is np.int64 else "Q")
        self._file: IO[bytes] | None = None
        self._spilled = 0

    def __len__(self) -> int:
        return self._spilled + len(self._latest)

    def append(self, number: int) -> None:
        """Append a number."""
        self._latest.append(number)
        self._spill_if_full()

    def extend(self, numbers: np.ndarray) -> None:
        """Append a block of numbers."""
        self._latest.frombytes(np.ascontiguousarray(numbers, self._kind).tobytes())
        self._spill_if_full()

    def __getitem__(self, index: int) -> int:
        if index >= self._spilled:
            return self._latest[index - self._spilled]
        return int(self._read(index, index + 1)[0])

    def blocks(self) -> Iterator[np.ndarray]:
        """Iterate over all numbers in blocks of about `in_memory`, in their order."""
        for start in range(0, self._spilled, self.in_memory):
            yield self._read(start, min(start + self.in_memory, self._spilled))
        yield np.array(self._latest, self._kind)

    def close(self) -> None:
        """Remove the file."""
        if self._file:
            self._file.close()

    def _spill_if_full(self) -> None:
        if len(self._latest) < self.in_memory:
            return
        with path_in_errors(self._folder):
            self._file = self._file or tempfile.TemporaryFile(  # noqa: SIM115  `close` closes it
                dir=self._folder, buffering=0
            )
            unwritten = memoryview(self._latest).cast("B")
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) :]
        self._spilled += len(self._latest)
        self._latest = self._latest[:0]

    def _read(self, start: int, end: int) -> np.ndarray:
        assert self._file is not None
        size, at, pieces = (end - start) * NUMBER_BYTES, start * NUMBER_BYTES, []
        while size:
            # One call reads at most 2 GiB.
            pieces.append(os.pread(self._file.fileno(), size, at))
            size, at = size - len(pieces[-1]), at + len(pieces[-1])
        return np.frombuffer(b"".join(pieces), self._kind)
