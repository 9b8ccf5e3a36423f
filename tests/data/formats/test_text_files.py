import bz2
import gzip
import lzma

import pytest

from pyserini_ance.data.formats.text_files import find_file, read_lines


def write(path, content: bytes):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\n", [(1, "a"), (2, "b")]),
        (b"a\nb", [(1, "a"), (2, "b")]),
        (b"a\r\nb\r\n", [(1, "a"), (2, "b")]),
        (b"a\r\r\nb\r\r\n\r\r\n", [(1, "a"), (2, "b")]),
        (b"a\n\n\nb\n\n", [(1, "a"), (4, "b")]),
        (b"\xef\xbb\xbfa\n", [(1, "a")]),
        ("007\tna\u00efve\u2028text \n".encode(), [(1, "007\tna\u00efve\u2028text ")]),
        (b"", []),
    ],
    ids=[
        "plain",
        "no last end",
        "windows",
        "windows twice",
        "empty lines",
        "byte order mark",
        "kept as it is",
        "empty file",
    ],
)
def test_lines_and_their_numbers(tmp_path, name, content, expected):
    path = write(tmp_path / name, content)
    assert [(line.path, line.number, line.text) for line in read_lines(path)] == [
        (path, *one) for one in expected
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\tgood\n2\tb\0d\n", "line 2: a NUL byte; expected UTF-8; remove it"),
        ("1\tgood\n".encode("utf-16"), "line 1: a NUL byte; .*iconv -f UTF-16"),
        (b"\xef\xbb\xbf\xef\xbb\xbf1\tgood\n", "line 1: a byte order mark; expected at most one"),
        (b"1\tgood\n\xef\xbb\xbf2\tbad\n", "line 2: a byte order mark"),
    ],
    ids=["NUL", "utf-16", "two marks", "a mark within"],
)
def test_invisible_bytes_are_errors(tmp_path, content, message):
    path = write(tmp_path / "t.tsv", content)
    with pytest.raises(ValueError, match=rf"t\.tsv, {message}"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("packed", "cure"),
    [
        (gzip.compress(b"1\tgood\n", mtime=0), r"rename it to t\.tsv\.gz"),
        (gzip.compress(b"1\tgood\n", mtime=0x7F7F7F7F), r"rename it to t\.tsv\.gz"),
        (bz2.compress(b"1\tgood\n"), "unpack it with bzip2"),
        (lzma.compress(b"1\tgood\n"), "unpack it with xz"),
        (b"\x28\xb5\x2f\xfd\x04\x48\x39\x00", "unpack it with zstd"),
    ],
    ids=["gzip", "gzip with a time", "bzip2", "xz", "zstd"],
)
def test_a_compressed_file_that_is_not_named_so_is_an_error(tmp_path, packed, cure):
    path = write(tmp_path / "t.tsv", packed)
    with pytest.raises(ValueError, match=rf"t\.tsv, line 1: a compressed file; expected text, .*; {cure}$"):
        list(read_lines(path))


def test_an_empty_gzip_file_is_an_error(tmp_path):
    (tmp_path / "t.tsv.gz").touch()
    with pytest.raises(ValueError, match=r"t\.tsv\.gz, line 1: damaged gzip file \(it is empty\)"):
        list(read_lines(tmp_path / "t.tsv.gz"))


@pytest.mark.parametrize(
    "cut", [slice(0, -9), slice(0, 40), slice(20, None)], ids=["checksum", "middle", "head"]
)
def test_a_damaged_gzip_file_is_an_error(tmp_path, cut):
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(range(32, 120)) * 9)[cut])
    with pytest.raises(
        ValueError, match=r"corpus\.jsonl\.gz, line \d+: damaged gzip file.*download it again"
    ):
        list(read_lines(path))


def test_a_file_is_found_with_and_without_gz(tmp_path, monkeypatch):
    plain, packed = write(tmp_path / "a.tsv", b""), write(tmp_path / "b.tsv.gz", b"")
    assert find_file(tmp_path / "a.tsv.gz", "data.x") == plain
    assert find_file(tmp_path / "b.tsv", "data.x") == packed
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_file(type(tmp_path)("~/a.tsv"), "data.x") == plain


def test_the_error_for_a_missing_file_names_its_key(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"c\.tsv, nor .*c\.tsv\.gz; set `data.dev` .* data.dev=PATH"):
        find_file(tmp_path / "c.tsv", "data.dev")
