"""Vectors on disk, written in any order, with a bitmap of the rows that are really there."""

import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyserini_ance.storage.files import BlockFile, read_json_object, write_json

SYNC_SECONDS = 2  # what a killed encoding loses at most
log = logging.getLogger(__name__)
VECTORS, WRITTEN, KEY = "vectors.float32", "written.bool", "key.json"


class VectorStore:
    """(rows, dimension) float32. A full-sized file proves nothing, since encoding goes by length: the bitmap does.

    Rows are marked in it only when the disk has their vectors. `key` says what the vectors are of (weights, tokens, side,
    precision); a folder with another key, or with files that were cut short, is emptied.
    """

    def __init__(self, folder: Path, rows: int, dimension: int, key: dict):
        self.folder, self.rows, self.dimension, self.key = folder, rows, dimension, key
        key = _whole_key(rows, dimension, key)
        sizes = {VECTORS: rows * dimension * 4, WRITTEN: rows}
        if not _holds(folder, key) or _is_cut_short(folder, sizes):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._vectors, self._written = (BlockFile(folder / name, size) for name, size in sizes.items())
        self._unmarked: list[np.ndarray] = []
        self._synced = time.monotonic()
        write_json(folder / KEY, key)

    def missing(self) -> np.ndarray:
        """Rows not yet written, ascending."""
        self._mark()
        return _missing(self.folder, self.rows)

    def write(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Write vectors (B, D) float32 to `rows` (B,)."""
        order = np.argsort(rows, kind="stable")
        rows, vectors = rows[order], np.ascontiguousarray(vectors[order], np.float32)
        for start, stop in _runs(rows):
            self._vectors.write_at(int(rows[start]) * self.dimension * 4, vectors[start:stop].data)
        self._unmarked.append(rows)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._mark()

    def _mark(self) -> None:
        """Enter what was written in the bitmap, once the disk has it."""
        if not self._unmarked:
            return
        self._vectors.sync()
        rows = np.sort(np.concatenate(self._unmarked))
        for start, stop in _runs(rows):
            self._written.write_at(int(rows[start]), b"\x01" * int(stop - start))
        self._unmarked, self._synced = [], time.monotonic()

    def read(self) -> np.ndarray:
        """All vectors as a read-only memory map. Raises RuntimeError when rows are missing."""
        self._mark()
        return read_vectors(self.folder, self.rows, self.dimension, self.key)

    def close(self) -> None:
        self._mark()
        self._vectors.close()
        self._written.close()


def read_vectors(folder: Path, rows: int, dimension: int, key: dict) -> np.ndarray:
    """The vectors of a store that another process may have written, as a read-only memory map.

    Raises RuntimeError when rows are missing or it holds vectors of something else.
    """
    if not _holds(folder, _whole_key(rows, dimension, key)):
        raise RuntimeError(f"{folder} does not hold the vectors of {key}; all processes must see the same files and data")
    missing = _missing(folder, rows)
    if len(missing):
        raise RuntimeError(f"{folder} lacks {len(missing)} of {rows} vectors, first row {missing[0]}; encode them first")
    if not rows:  # an empty file cannot be mapped
        return np.empty((0, dimension), np.float32)
    return np.memmap(folder / VECTORS, np.float32, "r", shape=(rows, dimension))


def _runs(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Where runs of consecutive rows start and stop in ascending `rows`."""
    starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
    return zip(starts, [*starts[1:], len(rows)], strict=True)


def _is_cut_short(folder: Path, sizes: dict[str, int]) -> bool:
    cut = [folder / name for name, size in sizes.items() if not (folder / name).exists() or (folder / name).stat().st_size != size]
    if cut:
        log.warning("%s has not the size it was made with; all vectors in the folder are encoded again", cut[0])
    return bool(cut)


def _missing(folder: Path, rows: int) -> np.ndarray:
    return np.flatnonzero(~np.fromfile(folder / WRITTEN, bool, rows))


def _whole_key(rows: int, dimension: int, key: dict) -> dict:
    return {**key, "rows": rows, "dimension": dimension}


def _holds(folder: Path, key: dict) -> bool:
    return read_json_object(folder / KEY) == key
