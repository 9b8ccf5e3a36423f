"""Vectors on disk, written in any order, with a bitmap of the rows that are really there."""

import json
import shutil
from pathlib import Path

import numpy as np

from pyserini_ance.storage.files import BlockFile, write_json

VECTORS, WRITTEN, KEY = "vectors.float32", "written.bool", "key.json"


class VectorStore:
    """(rows, dimension) float32. A full-sized file proves nothing, since encoding goes by length: the bitmap does.

    `key` says what the vectors are of (weights, tokens, side, precision); a folder with another key is emptied.
    """

    def __init__(self, folder: Path, rows: int, dimension: int, key: dict):
        self.folder, self.rows, self.dimension, self.key = folder, rows, dimension, key
        key = _whole_key(rows, dimension, key)
        if not _holds(folder, key):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._vectors = BlockFile(folder / VECTORS, rows * dimension * 4)
        self._written = BlockFile(folder / WRITTEN, rows)
        write_json(folder / KEY, key)

    def missing(self) -> np.ndarray:
        """Rows not yet written, ascending."""
        return _missing(self.folder, self.rows)

    def write(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Write vectors (B, D) float32 to `rows` (B,); the bitmap follows the vectors, never the other way round."""
        order = np.argsort(rows, kind="stable")
        rows, vectors = rows[order], np.ascontiguousarray(vectors[order], np.float32)
        starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            self._vectors.write_at(int(rows[start]) * self.dimension * 4, vectors[start:stop].data)
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            self._written.write_at(int(rows[start]), b"\x01" * int(stop - start))

    def read(self) -> np.ndarray:
        """All vectors as a read-only memory map. Raises RuntimeError when rows are missing."""
        return read_vectors(self.folder, self.rows, self.dimension, self.key)

    def close(self) -> None:
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


def _missing(folder: Path, rows: int) -> np.ndarray:
    return np.flatnonzero(~np.fromfile(folder / WRITTEN, bool, rows))


def _whole_key(rows: int, dimension: int, key: dict) -> dict:
    return {**key, "rows": rows, "dimension": dimension}


def _holds(folder: Path, key: dict) -> bool:
    path = folder / KEY
    return path.exists() and json.loads(path.read_text(encoding="utf-8")) == key
