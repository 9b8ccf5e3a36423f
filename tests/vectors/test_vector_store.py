"""VectorStore: rows in any order, known by a bitmap, whatever was interrupted or truncated."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import vector_store
from pyserini_ance.vectors.encoding import has_shards
from pyserini_ance.vectors.vector_store import VECTORS, VectorStore, VectorWriter, read_vectors

VECTORS_OF_ROWS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
KEY = {"weights": "abc", "side": "document"}


def open_store(folder, rows=20, dimension=3, **key) -> VectorStore:
    return VectorStore(folder / "store", rows, dimension, {**KEY, **key})


def test_rows_come_in_any_order(tmp_path):
    store = open_store(tmp_path)
    for rows in np.split(np.random.default_rng(1).permutation(20), [1, 4, 11]):
        store.write(rows, VECTORS_OF_ROWS[rows])
    read = store.read()
    np.testing.assert_array_equal(read, VECTORS_OF_ROWS)
    assert isinstance(read, np.memmap) and not read.flags.writeable and read.dtype == np.float32
    store.close()


def test_missing_rows_are_known_though_the_file_has_full_size(tmp_path):
    store = open_store(tmp_path)
    assert store.missing().tolist() == list(range(20))
    assert (tmp_path / "store" / VECTORS).stat().st_size == 20 * 3 * 4
    store.write(np.array([19, 3, 4]), VECTORS_OF_ROWS[[19, 3, 4]])
    assert store.missing().tolist() == [row for row in range(20) if row not in (3, 4, 19)]
    with pytest.raises(RuntimeError, match="lacks 17 of 20 vectors, first row 0; encode them first"):
        store.read()


def test_written_rows_are_kept_after_reopening(tmp_path):
    store = open_store(tmp_path)
    store.write(np.arange(5), VECTORS_OF_ROWS[:5])
    store.close()
    again = open_store(tmp_path)
    assert again.missing().tolist() == list(range(5, 20))
    again.write(np.arange(5, 20), VECTORS_OF_ROWS[5:])
    np.testing.assert_array_equal(again.read(), VECTORS_OF_ROWS)


@pytest.mark.parametrize("other", [{"weights": "xyz"}, {"precision": "bf16"}, {"rows": 19}, {"dimension": 4}])
def test_another_key_empties_the_store(tmp_path, other):
    store = open_store(tmp_path)
    store.write(np.arange(20), VECTORS_OF_ROWS)
    store.close()
    assert len(open_store(tmp_path, **other).missing()) == other.get("rows", 20)
    assert len(open_store(tmp_path).missing()) == 20


def test_a_folder_without_key_is_emptied(tmp_path):
    store = open_store(tmp_path)
    store.write(np.arange(20), VECTORS_OF_ROWS)
    (tmp_path / "store" / "key.json").unlink()
    assert len(open_store(tmp_path).missing()) == 20


def test_another_process_reads_only_vectors_of_its_key(tmp_path):
    store = open_store(tmp_path)
    store.write(np.arange(20), VECTORS_OF_ROWS)
    store.close()
    np.testing.assert_array_equal(read_vectors(store.folder, 20, 3, KEY), VECTORS_OF_ROWS)
    for other in ((20, 3, {**KEY, "weights": "xyz"}), (19, 3, KEY), (20, 2, KEY)):
        with pytest.raises(RuntimeError, match="does not hold the vectors of"):
            read_vectors(store.folder, *other)
    with pytest.raises(RuntimeError, match="does not hold the vectors of"):
        read_vectors(tmp_path / "nothing", 20, 3, KEY)


def test_a_store_may_be_empty(tmp_path):
    store = open_store(tmp_path, rows=0)
    assert store.missing().tolist() == [] and store.read().shape == (0, 3)


def test_rows_are_marked_after_their_vectors_are_synced(tmp_path, monkeypatch):
    done = []
    store = open_store(tmp_path)
    for file, name in ((store._vectors, "vectors"), (store._written, "bitmap")):
        for act in ("write_at", "sync"):
            real = getattr(file, act)
            monkeypatch.setattr(
                file, act, lambda *a, what=f"{act} {name}", real=real: (done.append(what), real(*a))[1]
            )
    store.write(np.arange(12), VECTORS_OF_ROWS[:12])
    assert done == ["write_at vectors"] and len(open_store(tmp_path).missing()) == 20
    store.write(np.arange(12, 20), VECTORS_OF_ROWS[12:])
    assert len(store.missing()) == 0
    assert done == ["write_at vectors", "write_at vectors", "sync vectors", "write_at bitmap"]


def test_rows_are_marked_regularly(tmp_path, monkeypatch):
    monkeypatch.setattr("pyserini_ance.vectors.vector_store.SYNC_SECONDS", -1)
    open_store(tmp_path).write(np.arange(12), VECTORS_OF_ROWS[:12])
    assert open_store(tmp_path).missing().tolist() == list(range(12, 20))


@pytest.mark.parametrize("name", ["vectors.float32", "written.bool"])
def test_truncated_files_are_not_filled_up_with_zeros(tmp_path, name, caplog):
    store = open_store(tmp_path)
    store.write(np.arange(20), VECTORS_OF_ROWS)
    store.close()
    os.truncate(store.folder / name, 10)
    assert len(open_store(tmp_path).missing()) == 20
    assert f"{name} does not have the size it was made with" in caplog.text


def test_a_full_disk_leaves_no_key(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        open_store(tmp_path)
    monkeypatch.undo()
    assert len(open_store(tmp_path).missing()) == 20


def test_two_processes_that_make_a_store_at_once_write_into_the_same_files(tmp_path, monkeypatch):
    """The second opens the store when the first has made a file of it and not yet its size."""
    opened, make = [], vector_store.BlockFile

    def interrupted(path, size):
        if not opened:
            opened.append(None)
            with monkeypatch.context() as other:
                other.setattr(os, "getpid", lambda: 1 << 30)
                opened[0] = open_store(tmp_path)
        return make(path, size)

    monkeypatch.setattr(vector_store, "BlockFile", interrupted)
    first = open_store(tmp_path)
    first.write(np.arange(12), VECTORS_OF_ROWS[:12])
    opened[0].write(np.arange(12, 20), VECTORS_OF_ROWS[12:])
    for store in (first, opened[0]):
        store.close()
    assert np.array_equal(open_store(tmp_path).read(), VECTORS_OF_ROWS)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_encoding_is_not_taken_for_a_whole_one(tmp_path):
    folder = tmp_path / "vectors"
    with closing(VectorStore(folder / "0-of-1", 20, 3, {})) as store:
        store.write(np.arange(12), VECTORS_OF_ROWS[:12])
        assert not has_shards(folder, World())
        store.write(np.arange(12, 20), VECTORS_OF_ROWS[12:])
    assert has_shards(folder, World()) and not has_shards(folder, World(0, 2))


def batches_of(rows: np.ndarray, sizes: int) -> list[np.ndarray]:
    return [rows[start : start + sizes] for start in range(0, len(rows), sizes)]


@pytest.fixture
def writes(monkeypatch) -> list[int]:
    """The sizes in bytes of the writes of vectors so far."""
    sizes, write_at = [], vector_store.BlockFile.write_at

    def counted(file, offset, data):
        if file.path.name == VECTORS:
            sizes.append(memoryview(data).nbytes)
        write_at(file, offset, data)

    monkeypatch.setattr(vector_store.BlockFile, "write_at", counted)
    return sizes


@pytest.mark.parametrize("windows", [[], [12], [5, 6, 15]])
def test_a_window_of_consecutive_rows_is_one_write(tmp_path, writes, windows):
    """Without the thread, one for nearly each row of a batch of rows from all over."""
    with closing(open_store(tmp_path)) as store:
        with VectorWriter(store) as writer:
            for window in np.split(np.arange(20), windows):
                for rows in batches_of(np.random.default_rng(0).permutation(window), 4):
                    writer.put(rows, VECTORS_OF_ROWS[rows])
                writer.end_window()
        np.testing.assert_array_equal(store.read(), VECTORS_OF_ROWS)
    assert writes == (np.diff([0, *windows, 20]) * 3 * 4).tolist()


def test_a_full_window_is_written_before_its_end(tmp_path, writes, monkeypatch):
    monkeypatch.setattr(vector_store, "WINDOW_BYTES", 5 * 3 * 4)
    with closing(open_store(tmp_path)) as store, VectorWriter(store) as writer:
        for rows in batches_of(np.arange(20), 3):
            writer.put(rows, VECTORS_OF_ROWS[rows])
    assert writes == [6 * 3 * 4] * 3 + [2 * 3 * 4]


@pytest.mark.parametrize("more_comes", [True, False])
def test_a_window_waits_no_longer_than_its_time(tmp_path, monkeypatch, more_comes):
    monkeypatch.setattr(vector_store, "SYNC_SECONDS", 0.01)
    with closing(open_store(tmp_path)) as store, VectorWriter(store) as writer:
        writer.put(np.arange(12), VECTORS_OF_ROWS[:12])
        while len(open_store(tmp_path).missing()) == 20:
            if more_comes:
                writer.put(np.array([13]), VECTORS_OF_ROWS[13:14])
            time.sleep(0.01)
        assert set(open_store(tmp_path).missing()) >= {12, *range(14, 20)}


def test_what_was_put_is_written_when_encoding_fails(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        closing(open_store(tmp_path)) as store,
        VectorWriter(store) as writer,
    ):
        writer.put(np.arange(12), VECTORS_OF_ROWS[:12])
        raise KeyboardInterrupt
    assert open_store(tmp_path).missing().tolist() == list(range(12, 20))
    assert threading.active_count() == 1 or "vector writer" not in [t.name for t in threading.enumerate()]


@pytest.mark.parametrize("batches", [1, 100])
def test_an_error_of_the_thread_ends_the_encoding_with_its_cause(tmp_path, monkeypatch, batches):
    """At the next batch or at the end, however many batches wait."""
    monkeypatch.setattr(vector_store, "WINDOW_BYTES", 1)
    store = open_store(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device", "vectors.float32")

    monkeypatch.setattr(store, "write", full)
    with (
        pytest.raises(OSError, match="No space left on device: 'vectors.float32'"),
        VectorWriter(store) as writer,
    ):
        for _ in range(batches):
            writer.put(np.arange(12), VECTORS_OF_ROWS[:12])
    assert len(open_store(tmp_path).missing()) == 20


KILLED = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from pyserini_ance.vectors import vector_store

vector_store.SYNC_SECONDS = 0.01
folder = Path(sys.argv[1])
writer = vector_store.VectorWriter(vector_store.VectorStore(folder, 20, 3, {}))
vectors = np.load(sys.argv[2])
for row in np.random.default_rng(0).permutation(20):
    writer.put(np.array([row]), vectors[[row]])
    time.sleep(0.005)
    if len(vector_store._missing(folder, 20)) < 12:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_encoding_leaves_a_store_that_continues(tmp_path):
    np.save(tmp_path / "vectors.npy", VECTORS_OF_ROWS)
    folder = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, folder, tmp_path / "vectors.npy"], stderr=subprocess.PIPE
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with closing(VectorStore(folder, 20, 3, {})) as store:
        missing = store.missing()
        assert 0 < len(missing) < 12
        written = np.setdiff1d(np.arange(20), missing)
        kept = np.fromfile(folder / VECTORS, np.float32).reshape(20, 3)
        np.testing.assert_array_equal(kept[written], VECTORS_OF_ROWS[written])
        with VectorWriter(store) as writer:
            writer.put(missing, VECTORS_OF_ROWS[missing])
        np.testing.assert_array_equal(store.read(), VECTORS_OF_ROWS)
