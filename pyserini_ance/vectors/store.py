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
        self.folder, self.rows, self.dimension = folder, rows, dimension
        key = {**key, "rows": rows, "dimension": dimension}
        if not _holds(folder, key):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._vectors = BlockFile(folder / VECTORS, rows * dimension * 4)
        self._written = BlockFile(folder / WRITTEN, rows)
        write_json(folder / KEY, key)

    def missing(self) -> np.ndarray:
        """Rows not yet written, ascending."""
        return np.flatnonzero(~np.fromfile(self.folder / WRITTEN, bool, self.rows))

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
        missing = self.missing()
        if len(missing):
            raise RuntimeError(f"{self.folder} lacks {len(missing)} of {self.rows} vectors, first row {missing[0]}; encode them first")
        return np.memmap(self.folder / VECTORS, np.float32, "r", shape=(self.rows, self.dimension))

    def close(self) -> None:
        self._vectors.close()
        self._written.close()


def _holds(folder: Path, key: dict) -> bool:
    path = folder / KEY
    return path.exists() and json.loads(path.read_text(encoding="utf-8")) == key
