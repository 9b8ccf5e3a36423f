import random
import subprocess
import sys

import numpy as np
import pytest

from pyserini_ance.data import string_arrays
from pyserini_ance.data.spilled_numbers import SpilledNumbers
from pyserini_ance.data.string_arrays import (
    RowsOfHashes,
    RowsOfIds,
    Strings,
    hashes_of,
    write_rows,
    write_strings,
)

IDS = ["007", "7", "07", "é", "e\u0301", "D-1", "d-1", "日本"]


@pytest.fixture
def rows_of(tmp_path):
    def make(ids: list[str]) -> RowsOfIds:
        write_strings(tmp_path / "ids", ids)
        stored = Strings.open(tmp_path / "ids")
        hashes = SpilledNumbers(tmp_path, np.uint64, 1000)
        hashes.extend(hashes_of((id.encode() for id in ids), len(ids)))
        write_rows(tmp_path / "ids", hashes)
        return RowsOfIds.open(tmp_path / "ids", stored)

    return make


def test_known_and_unknown_ids(rows_of):
    rows = rows_of(IDS)
    assert dict(rows) == {id: row for row, id in enumerate(IDS)} and list(rows) == IDS
    assert len(rows) == 8 and all(type(rows[id]) is int for id in IDS)
    for missing in ("", "0007", "É", "7 ", "\ud800", "\0"):
        assert missing not in rows and rows.get(missing) is None
        with pytest.raises(KeyError):
            rows[missing]


@pytest.mark.parametrize(
    "hashed",
    [lambda encoded: 0, lambda encoded: len(encoded), lambda encoded: (1 << 64) - 1 - len(encoded) % 2],
)
def test_ids_with_equal_hashes_are_distinguished(rows_of, monkeypatch, hashed):
    monkeypatch.setattr(string_arrays, "hash_of", hashed)
    rows = rows_of(IDS)
    assert [rows[id] for id in IDS] == list(range(8))
    assert [missing for missing in ("0007", "x", "yy", "zzz", "") if missing in rows] == []


def test_many_ids_agree_with_a_dictionary(rows_of):
    numbers = random.Random(0).sample(range(100_000), 3000)
    expected, rows = {str(n): row for row, n in enumerate(numbers)}, rows_of([str(n) for n in numbers])
    queried = [str(n) for n in range(0, 100_000, 7)]
    assert [rows.get(id) for id in queried] == [expected.get(id) for id in queried]


def test_no_ids_at_all(rows_of):
    rows = rows_of([])
    assert len(rows) == 0 and "" not in rows and dict(rows) == {}


def test_the_hashes_are_memory_mapped_and_sorted(rows_of):
    rows = rows_of(IDS)
    assert isinstance(rows.hashes, np.memmap) and isinstance(rows.rows, np.memmap)
    assert (rows.hashes.dtype, rows.rows.dtype) == (np.uint64, np.int32)
    assert (np.diff(rows.hashes.astype(object)) > 0).all() and sorted(rows.rows.tolist()) == list(range(8))


def test_hashes_are_the_same_in_every_process():
    program = "from pyserini_ance.data.string_arrays import hash_of; print(hash_of('é'.encode()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == string_arrays.hash_of("é".encode())


@pytest.mark.parametrize("most", [1 << 64, 1 << 11, 1 << 2])
def test_rows_of_hashes_agree_with_a_dictionary(most):
    """Even if many hashes share a slot, and beyond several sizes of the table."""
    drawn, expected, rows = random.Random(most), {}, RowsOfHashes(slots=4)
    for _ in range(5000):
        hashed = drawn.randrange(most) if drawn.random() < 0.7 else drawn.randrange(most) & ~0xFFF
        assert rows.row_of(hashed) == expected.setdefault(hashed, len(expected))
    assert len(rows) == len(expected)
