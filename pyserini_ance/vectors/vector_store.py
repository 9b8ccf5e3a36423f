"""VectorStore: vectors on disk, written in any order; VectorWriter: a thread that writes them."""

import logging
import queue
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from pyserini_ance.storage.files import BlockFile, read_json_object, write_json
from pyserini_ance.storage.publish import whole_folder

SYNC_SECONDS = 2  # the most that a killed encoding loses, besides as much that waits to be written
WINDOW_BYTES = 1 << 26  # of vectors that are written together
MOST_WAITING = 16  # batches that wait for the writer
log = logging.getLogger(__name__)
VECTORS, WRITTEN, KEY = "vectors.float32", "written.bool", "key.json"
Batch = tuple[np.ndarray, np.ndarray]  # rows (B,) and vectors (B, D) float32


class VectorStore:
    """(rows, dimension) float32 in a file of full size, and a bitmap of the rows that were written.

    A row is marked in the bitmap only when its vector is on disk. `key` says what the vectors are of
    (weights, tokens, side, precision). A folder with another key, or with truncated files, is emptied.
    """

    def __init__(self, folder: Path, rows: int, dimension: int, key: dict):
        self.folder, self.rows, self.dimension, self.key = folder, rows, dimension, key
        key = _full_key(rows, dimension, key)
        sizes = {VECTORS: rows * dimension * 4, WRITTEN: rows}
        if folder.exists() and (not _holds(folder, key) or _is_truncated(folder, sizes)):
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            _make_empty(folder, key, sizes)
        self._vectors, self._written = (BlockFile(folder / name, size) for name, size in sizes.items())
        self._unsynced_rows: list[np.ndarray] = []
        self._synced_at = time.monotonic()

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
        self._unsynced_rows.append(rows)
        if time.monotonic() - self._synced_at > SYNC_SECONDS:
            self._mark()

    def _mark(self) -> None:
        """Sync the vectors, then mark their rows in the bitmap."""
        if not self._unsynced_rows:
            return
        self._vectors.sync()
        rows = np.sort(np.concatenate(self._unsynced_rows))
        for start, stop in _runs(rows):
            self._written.write_at(int(rows[start]), b"\x01" * int(stop - start))
        self._unsynced_rows, self._synced_at = [], time.monotonic()

    def read(self) -> np.ndarray:
        """All vectors (rows, dimension) as a read-only memory map.

        Raises RuntimeError when rows are missing.
        """
        self._mark()
        return read_vectors(self.folder, self.rows, self.dimension, self.key)

    def close(self) -> None:
        """Sync everything written, and close the files."""
        self._mark()
        self._vectors.close()
        self._written.close()


class VectorWriter:
    """Writes to a VectorStore in a thread of its own, so that encoding waits for neither writes nor syncs.

    Batches are collected until `end_window`, `WINDOW_BYTES` or `SYNC_SECONDS`, and then written by rising
    rows: consecutive rows, of whatever batches, are one write. As a context manager it has written everything
    when the block ends, also when the block raises. Raises what the thread raised.
    """

    def __init__(self, store: VectorStore):
        self._store = store
        self._waiting: queue.Queue[Batch | None] = queue.Queue(MOST_WAITING)
        self._error: BaseException | None = None
        self._has_ended = False
        # A daemon, because an interpreter that ends must not wait for a thread that waits for batches.
        self._thread = threading.Thread(target=self._run, name="vector writer", daemon=True)
        self._thread.start()

    def put(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Write vectors (B, D) float32 to `rows` (B,); neither may change any more. Waits for a slow disk."""
        self._put((rows, vectors))

    def end_window(self) -> None:
        """Write what was put so far together."""
        self._put(None)

    def _put(self, batch: Batch | None) -> None:
        self._raise()
        self._waiting.put(batch)

    def __enter__(self) -> "VectorWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._has_ended = True
        self._waiting.put(None)
        self._thread.join()
        if error is None:
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        """Write until the end; after an error, take what comes and drop it, so that nobody waits."""
        window: list[Batch] = []
        since, size = time.monotonic(), 0
        while True:
            batch = self._next(since if window else None)
            if batch is not None and self._error is None:
                since = since if window else time.monotonic()
                window.append(batch)
                size += batch[1].nbytes
            is_due = batch is None or size >= WINDOW_BYTES or time.monotonic() - since > SYNC_SECONDS
            if window and is_due:
                self._write(window)
                window, size = [], 0
            if batch is None and self._has_ended and self._waiting.empty():
                return

    def _next(self, since: float | None) -> Batch | None:
        """The next batch; None at the end of a window, or if none comes before the window is due."""
        try:
            due = None if since is None else max(0.0, since + SYNC_SECONDS - time.monotonic())
            return self._waiting.get(timeout=due)
        except queue.Empty:
            return None

    def _write(self, window: list[Batch]) -> None:
        try:
            rows, vectors = zip(*window, strict=True)
            self._store.write(np.concatenate(rows), np.concatenate(vectors))
        except BaseException as error:  # raised again where the vectors come from
            self._error = error


def _make_empty(folder: Path, key: dict, sizes: dict[str, int]) -> None:
    """Make the files of a store, in their full sizes before any process can see them."""
    with (
        suppress(FileExistsError),
        whole_folder(folder) as temporary,
    ):  # another process may make it meanwhile
        for name, size in sizes.items():
            BlockFile(temporary / name, size).close()
        write_json(temporary / KEY, key)


def read_vectors(folder: Path, rows: int, dimension: int, key: dict) -> np.ndarray:
    """The vectors (rows, dimension) of a store, perhaps of another process, as a read-only memory map.

    Raises RuntimeError when rows are missing or the store has another key.
    """
    if not _holds(folder, _full_key(rows, dimension, key)):
        raise RuntimeError(
            f"{folder} does not hold the vectors of {key}; all processes must see the same files and data"
        )
    missing = _missing(folder, rows)
    if len(missing):
        raise RuntimeError(
            f"{folder} lacks {len(missing)} of {rows} vectors, first row {missing[0]}; encode them first"
        )
    if not rows:  # an empty file cannot be mapped
        return np.empty((0, dimension), np.float32)
    return np.memmap(folder / VECTORS, np.float32, "r", shape=(rows, dimension))


def _runs(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """The bounds in ascending `rows` of runs of consecutive rows."""
    starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
    return zip(starts, [*starts[1:], len(rows)], strict=True)


def _is_truncated(folder: Path, sizes: dict[str, int]) -> bool:
    truncated = [
        folder / name
        for name, size in sizes.items()
        if not (folder / name).exists() or (folder / name).stat().st_size != size
    ]
    if truncated:
        log.warning(
            "%s does not have the size it was made with; all vectors in the folder are encoded again",
            truncated[0],
        )
    return bool(truncated)


def _missing(folder: Path, rows: int) -> np.ndarray:
    return np.flatnonzero(~np.fromfile(folder / WRITTEN, bool, rows))


def is_written(folder: Path) -> bool:
    """Whether the store in `folder` has all its rows."""
    bitmap = folder / WRITTEN
    return bitmap.exists() and bool(np.fromfile(bitmap, bool).all())


def _full_key(rows: int, dimension: int, key: dict) -> dict:
    return {**key, "rows": rows, "dimension": dimension}


def _holds(folder: Path, key: dict) -> bool:
    return read_json_object(folder / KEY) == key
