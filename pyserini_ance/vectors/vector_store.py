"""VectorStore: vectors on disk, written in windows of rows, each of which is whole or absent."""

import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np

from pyserini_ance.storage import files
from pyserini_ance.storage.publish import whole_folder

log = logging.getLogger(__name__)
VECTORS, WINDOWS, KEY = "vectors.float32", "windows.jsonl", "key.json"


Store = tuple[Path, int, int, dict]  # the arguments of VectorStore and of read_vectors


def stores_of(folder: Path, bounds: Sequence[int], dimension: int, key: dict) -> list[Store]:
    """One store for each process: process i has the rows bounds[i] to bounds[i + 1].

    Two hosts that write into one file over NFS overwrite each other's bytes, whole pages at a time.
    """
    return [
        (folder / f"{rank}-of-{len(bounds) - 1}", stop - first, dimension, {**key, "first": first})
        for rank, (first, stop) in enumerate(pairwise(bounds))
    ]


class VectorStore:
    """(rows, dimension) float32 in a file of full size, and a log of the windows that were written.

    A window is logged only when its vectors are on disk. `key` says what the vectors are of (weights, tokens,
    side, precision). A folder with another key, or with a truncated file, is emptied.
    """

    def __init__(self, folder: Path, rows: int, dimension: int, key: dict):
        self.folder, self.rows, self.dimension = folder, rows, dimension
        size_bytes = rows * dimension * 4
        whole_key = {**key, "rows": rows, "dimension": dimension}
        file = folder / VECTORS
        has_key = files.read_json_object(folder / KEY) == whole_key
        is_whole = file.exists() and file.stat().st_size == size_bytes
        if has_key and not is_whole:
            log.warning("%s does not have the size it was made with; all vectors are encoded again", file)
        if folder.exists() and not (has_key and is_whole):
            shutil.rmtree(folder, ignore_errors=True)
        # In full size before another process can see it, which may make the same store meanwhile.
        if not folder.exists():
            with suppress(FileExistsError), whole_folder(folder) as temporary:
                files.reserve(temporary / VECTORS, size_bytes)
                files.write_json(temporary / KEY, whole_key)

    def write(self, first: int, vectors: np.ndarray) -> None:
        """Write a window: vectors (W, D) float32 of the rows from `first` on."""
        data = np.ascontiguousarray(vectors, np.float32).data
        files.write_at(self.folder / VECTORS, first * self.dimension * 4, data)
        window = {"first": first, "stop": first + len(vectors)}
        files.append_json_line(self.folder / WINDOWS, window, durable=True)


def read_vectors(folder: Path, rows: int, dimension: int, key: dict) -> np.ndarray:
    """The vectors (rows, dimension) of a store, perhaps of another process, as a read-only memory map.

    Raises RuntimeError when rows are missing or the store has another key.
    """
    if files.read_json_object(folder / KEY) != {**key, "rows": rows, "dimension": dimension}:
        cure = "all processes must see the same files and data"
        raise RuntimeError(f"{folder} does not hold the vectors of {key}; {cure}")
    written = 0  # rows before the first one that is missing
    for first, stop in sorted(written_windows(folder)):
        written = max(written, stop) if first <= written else written
    if written < rows:
        raise RuntimeError(f"{folder} lacks vectors from row {written} of {rows} on; encode them first")
    if not rows:  # an empty file cannot be mapped
        return np.empty((0, dimension), np.float32)
    return np.memmap(folder / VECTORS, np.float32, "r", shape=(rows, dimension))


def written_windows(folder: Path) -> set[tuple[int, int]]:
    """The windows that were written into a store, as [first, stop) rows."""
    return {(window["first"], window["stop"]) for window in files.read_json_lines(folder / WINDOWS)}
