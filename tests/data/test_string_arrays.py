import random
import subprocess
import sys
from itertools import batched
from pathlib import Path

import numpy as np
import pytest

from pyserini_ance.data import string_arrays
from pyserini_ance.data.spilled_numbers import SpilledNumbers
from pyserini_ance.data.string_arrays import (
    ArrayFile,
    RowsOfHashes,
    RowsOfIds,
    Strings,
    StringsFile,
    hashes_of,
    write_rows,
)

VALUES = ["007", "", "7", "a\r\nb\n", "é", "日本語 🙂", " leading and trailing\t", "\u2028", "x" * 5000, ""]


def write_strings(path: Path, strings: list[str]) -> None:
    out = StringsFile(path)
    for block in batched(strings, string_arrays.STRINGS_PER_BLOCK):
        out.append([string.encode() for string in block])
    out.close()


@pytest.fixture
def opened(tmp_path) -> Strings:
    write_strings(tmp_path / "some.name", VALUES)
    return Strings.open(tmp_path / "some.name")


def test_every_string_is_read_back(opened):
    assert len(opened) == len(VALUES)
    assert list(opened) == VALUES == [opened[row] for row in range(len(VALUES))]


@pytest.mark.parametrize("row", [0, 5, -1, -len(VALUES), np.int32(3), np.int64(-2), np.arange(9)[8]])
def test_indices_work_as_in_a_list(opened, row):
    assert opened[row] == VALUES[row]
    assert bytes(opened.encoded(row)) == VALUES[row].encode()


@pytest.mark.parametrize("row", [len(VALUES), -len(VALUES) - 1, np.int32(1000)])
def test_an_index_out_of_range_is_an_error(opened, row):
    with pytest.raises(IndexError):
        opened[row]


@pytest.mark.parametrize(
    "part", [slice(2), slice(3, 7), slice(None, None, -1), slice(-3, None), slice(1, 99, 4), slice(5, 2)]
)
def test_a_slice_is_a_list(opened, part):
    assert opened[part] == VALUES[part]


def test_strings_are_a_sequence(opened):
    assert "7" in opened and "07" not in opened
    assert opened.index("é") == 4 and opened.count("") == 2
    assert list(reversed(opened)) == VALUES[::-1]
    assert list(zip(opened, VALUES, strict=True)) == list(zip(VALUES, VALUES, strict=True))


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 11])
def test_any_number_of_strings_is_written_and_read_in_blocks(tmp_path, monkeypatch, count):
    monkeypatch.setattr(string_arrays, "STRINGS_PER_BLOCK", 4)
    values = [f"{i}é" * (i % 3) for i in range(count)]
    write_strings(tmp_path / "s", values)
    opened = Strings.open(tmp_path / "s")
    assert list(opened) == values and len(opened) == count


def test_empty_strings(tmp_path):
    write_strings(tmp_path / "s", ["", ""])
    assert list(Strings.open(tmp_path / "s")) == ["", ""]


def test_strings_are_memory_mapped_and_read_only(opened):
    for array in (opened.text, opened.offsets):
        assert isinstance(array, np.memmap) and not array.flags.writeable
    with pytest.raises(TypeError):
        opened[0] = "other"


def test_reading_some_strings_leaves_the_others_on_disk(tmp_path, resident_bytes):
    write_strings(tmp_path / "s", ["x" * 1000] * 40_000)
    opened = Strings.open(tmp_path / "s")
    assert opened[39_999] == opened[3] == "x" * 1000
    assert 0 < resident_bytes(tmp_path) < 10 << 20  # of 40; a page brings up to 2 with it


def test_release_frees_the_memory_of_read_strings(tmp_path, resident_bytes):
    write_strings(tmp_path / "s", ["x" * 1000] * 40_000)
    opened = Strings.open(tmp_path / "s")
    assert sum(map(len, opened)) == 40_000_000 and resident_bytes(tmp_path) > 30 << 20
    opened.release()
    assert resident_bytes(tmp_path) < 1 << 20 and opened[7] == "x" * 1000


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.uint16])
@pytest.mark.parametrize("blocks", [[], [0], [3, 0, 4], [100_000, 1]])
def test_blocks_make_the_same_file_as_numpy_save(tmp_path, kind, blocks):
    parts = [np.arange(size) + size for size in blocks]
    out = ArrayFile(tmp_path / "blocks.npy", kind)
    for part in parts:
        out.append(part)
    out.close()
    whole = np.concatenate([*parts, []]).astype(kind)
    np.save(tmp_path / "whole.npy", whole)
    assert (tmp_path / "blocks.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert out.length == len(whole)


def test_a_later_writer_continues_the_files_of_an_earlier_one(tmp_path):
    strings = ["one", "", "drei 🙂", "4"]
    write_strings(tmp_path / "whole", strings)
    for length in range(len(strings)):
        write_strings(tmp_path / "again", strings[:length])
        out = StringsFile(tmp_path / "again", length)
        out.append([string.encode() for string in strings[length:]])
        out.close()
        for end in (".utf8", ".offsets.npy"):
            again, whole = ((tmp_path / f"{name}{end}").read_bytes() for name in ("again", "whole"))
            assert again == whole
        for path in tmp_path.glob("again*"):
            path.unlink()


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
