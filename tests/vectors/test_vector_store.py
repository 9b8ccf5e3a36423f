"""VectorStore: rows in any order, known by a bitmap, whatever was interrupted or truncated."""

import os
from contextlib import closing

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import vector_store
from pyserini_ance.vectors.encoding import has_shards
from pyserini_ance.vectors.vector_store import VECTORS, VectorStore, read_vectors

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
