import numpy as np
import pytest

from pyserini_ance.data import string_arrays as strings_module
from pyserini_ance.data.string_arrays import ArrayFile, Strings, StringsFile, write_strings

VALUES = ["007", "", "7", "a\r\nb\n", "é", "日本語 🙂", " leading and trailing\t", "\u2028", "x" * 5000, ""]


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
    monkeypatch.setattr(strings_module, "STRINGS_PER_BLOCK", 4)
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
