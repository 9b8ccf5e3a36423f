"""VectorStore: windows of rows in any order, whatever was interrupted or truncated."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from unittest.mock import Mock

import numpy as np
import pytest

from pyserini_ance.vectors import vector_store
from pyserini_ance.vectors.vector_store import VECTORS, WINDOWS, VectorStore, read_vectors, written_windows

ROWS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
KEY = {"weights": "abc", "side": "document"}
OTHERS = [{"weights": "xyz"}, {"precision": "bf16"}, {"rows": 19}, {"dimension": 4}, "no key", "truncated"]


def open_store(folder, rows=20, dimension=3, **key) -> VectorStore:
    return VectorStore(folder / "store", rows, dimension, {**KEY, **key})


@pytest.fixture
def whole(tmp_path) -> VectorStore:
    store = open_store(tmp_path)
    for first, stop in [(12, 20), (0, 5), (5, 12)]:
        store.write(first, ROWS[first:stop])
    return store


def test_windows_come_in_any_order(whole):
    vectors = read_vectors(whole.folder, 20, 3, KEY)
    np.testing.assert_array_equal(vectors, ROWS)
    assert isinstance(vectors, np.memmap) and not vectors.flags.writeable and vectors.dtype == np.float32


def test_missing_windows_are_known_though_the_file_has_full_size(tmp_path):
    store = open_store(tmp_path)
    assert written_windows(store.folder) == set()
    assert (store.folder / VECTORS).stat().st_size == 20 * 3 * 4
    store.write(5, ROWS[5:12])
    again = open_store(tmp_path)
    assert written_windows(again.folder) == {(5, 12)}
    for first, written in ((0, 12), (14, 12), (12, 20)):
        if written < 20:
            again.write(first, ROWS[first : {0: 5, 14: 20}[first]])
            with pytest.raises(RuntimeError, match=f"lacks vectors from row {written} of 20 on; encode them"):
                read_vectors(again.folder, 20, 3, KEY)
    again.write(12, ROWS[12:])
    np.testing.assert_array_equal(read_vectors(again.folder, 20, 3, KEY), ROWS)


@pytest.mark.parametrize("other", OTHERS)
def test_another_key_or_a_damaged_file_empties_the_store(whole, tmp_path, caplog, other):
    if other == "no key":
        (whole.folder / "key.json").unlink()
    elif other == "truncated":  # which must not be filled up with zeros
        os.truncate(whole.folder / VECTORS, 10)
    assert written_windows(open_store(tmp_path, **(other if isinstance(other, dict) else {})).folder) == set()
    assert ("does not have the size it was made with" in caplog.text) == (other == "truncated")


def test_another_process_reads_only_vectors_of_its_key(whole, tmp_path):
    for other in ((20, 3, {**KEY, "weights": "xyz"}), (19, 3, KEY), (20, 2, KEY)):
        with pytest.raises(RuntimeError, match="does not hold the vectors of"):
            read_vectors(whole.folder, *other)
    with pytest.raises(RuntimeError, match="does not hold the vectors of"):
        read_vectors(tmp_path / "nothing", 20, 3, KEY)
    assert read_vectors(open_store(tmp_path / "empty", rows=0).folder, 0, 3, KEY).shape == (0, 3)


def test_a_window_is_logged_after_its_vectors_are_synced(tmp_path, monkeypatch):
    store, done = open_store(tmp_path), []
    monkeypatch.setattr(os, "fsync", lambda _: done.append((store.folder / VECTORS).read_bytes()))
    monkeypatch.setattr(vector_store.files, "append_json_line", lambda *_, durable: done.append(durable))
    store.write(0, ROWS)
    assert done == [ROWS.tobytes(), True]  # the line too is synced


def test_a_line_that_a_crash_cut_short_is_no_window(whole, tmp_path):
    log = whole.folder / WINDOWS
    os.truncate(log, log.stat().st_size - 1)
    store = open_store(tmp_path)
    assert written_windows(store.folder) == {(12, 20), (0, 5)}
    store.write(5, ROWS[5:12])
    np.testing.assert_array_equal(read_vectors(store.folder, 20, 3, KEY), ROWS)


def test_a_full_disk_leaves_no_key(tmp_path, monkeypatch):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left"):
        open_store(tmp_path)
    monkeypatch.undo()
    assert written_windows(open_store(tmp_path).folder) == set()


def test_two_that_make_a_store_at_once_write_into_the_same_files(tmp_path, monkeypatch):
    """Neither has the store when both begin."""
    both, make = Barrier(2), vector_store.whole_folder
    monkeypatch.setattr(vector_store, "whole_folder", lambda folder: (both.wait() and False) or make(folder))

    def half(first: int) -> None:
        store = open_store(tmp_path)
        both.wait()
        store.write(first, ROWS[first : first + 10])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(half, (0, 10)))
    np.testing.assert_array_equal(read_vectors(tmp_path / "store", 20, 3, KEY), ROWS)
