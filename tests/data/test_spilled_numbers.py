"""Spilled numbers equal a list, whatever part of them is in memory."""

import numpy as np
import pytest

from pyserini_ance.data import string_arrays
from pyserini_ance.data.spilled_numbers import SpilledNumbers
from pyserini_ance.data.string_arrays import write_rows


@pytest.mark.parametrize("in_memory", [1, 3, 10, 11])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_numbers_in_their_order(tmp_path, in_memory, count):
    numbers = SpilledNumbers(tmp_path, np.int64, in_memory)
    expected = [(-1) ** n * n << 40 for n in range(count)]
    for number in expected[:4]:
        numbers.append(number)
    numbers.extend(np.array(expected[4:], np.int64))
    assert len(numbers) == count and [numbers[index] for index in range(count)] == expected
    for _ in range(2):
        blocks = list(numbers.blocks())
        assert [number for block in blocks for number in block.tolist()] == expected
        assert {block.dtype for block in blocks} == {np.dtype(np.int64)}
    numbers.close()


def test_the_file_has_no_name(tmp_path):
    numbers = SpilledNumbers(tmp_path, np.uint64, 2)
    numbers.extend(np.array([1, (1 << 64) - 1, 3, 4, 5], np.uint64))
    assert numbers[1] == (1 << 64) - 1 and list(tmp_path.iterdir()) == []
    numbers.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    numbers = SpilledNumbers(tmp_path / "absent", np.int64, 1)
    with pytest.raises(FileNotFoundError, match="absent"):
        numbers.append(1)


@pytest.mark.parametrize("in_memory", [3, 50, 1000])
@pytest.mark.parametrize(
    "hashes",
    [
        [],
        [0, (1 << 64) - 1],
        [5] * 20,
        np.random.default_rng(0).integers(0, 1 << 64, 90, np.uint64).tolist() * 2,
    ],
    ids=["none", "ends", "equal", "many"],
)
def test_rows_sorted_in_parts_equal_one_sort(tmp_path, hashes, in_memory):
    numbers = SpilledNumbers(tmp_path, np.uint64, in_memory)
    numbers.extend(np.array(hashes, np.uint64))
    write_rows(tmp_path / "ids", numbers)
    numbers.close()
    order = np.argsort(np.array(hashes, np.uint64), kind="stable")
    sorted_hashes, rows = (np.load(tmp_path / f"ids.{name}.npy") for name in ("hashes", "rows"))
    assert sorted_hashes.tolist() == sorted(hashes) and sorted_hashes.dtype == np.uint64
    assert rows.tolist() == order.tolist() and rows.dtype == np.int32


def test_equal_hashes_are_found_at_the_ends_of_blocks(monkeypatch):
    monkeypatch.setattr(string_arrays, "HASHES_PER_BLOCK", 2)
    hashes = np.array([1, 1, 1, 2, 3, 3, 4], np.uint64)
    assert list(string_arrays._equal_to_next(hashes)) == [0, 1, 4]
