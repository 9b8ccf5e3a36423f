import bz2
import gzip
import lzma

import pytest

from pyserini_ance.data.formats.lines import (
    Line,
    extension,
    find_file,
    is_writable,
    json_id,
    json_text,
    read_lines,
    whole_number,
)
from pyserini_ance.data.formats.records import read_list


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


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
def test_lines_have_their_start_and_the_bytes_read(tmp_path, name):
    text = "\ufeffa\r\n\né\n".encode() + b"b" * 100_000
    path = write(tmp_path / name, text)
    first, second, third = read_lines(path)
    assert (first.start, text[second.start :][:2].decode(), text[third.start :]) == (0, "é", b"b" * 100_000)
    assert 0 < first.read_bytes <= second.read_bytes <= third.read_bytes == path.stat().st_size


def test_the_error_for_a_line_that_is_not_utf8_names_it(tmp_path):
    path = write(tmp_path / "latin.tsv", b"1\tgood\n2\tna\xefve\n")
    with pytest.raises(ValueError, match=r"latin\.tsv, line 2: byte 0xef at column 5 is not UTF-8.*iconv"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"1\tgood\n2\tb\0d\n",
            "line 2: a NUL byte at column 4; expected UTF-8; remove it, or convert .* iconv -f UTF-16",
        ),
        ("1\tgood\n".encode("utf-16"), "line 1: a NUL byte at column 4; .*iconv -f UTF-16"),
        (
            b"\xef\xbb\xbf\xef\xbb\xbf1\tgood\n",
            "line 1: a byte order mark; expected at most one, at the start of the file; remove",
        ),
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
@pytest.mark.parametrize("read", [read_lines, read_list])
def test_a_compressed_file_that_is_not_named_so_is_an_error(tmp_path, packed, cure, read):
    path = write(tmp_path / "t.tsv", packed)
    with pytest.raises(ValueError, match=rf"t\.tsv, line 1: a compressed file; expected text, .*; {cure}$"):
        list(read(path))


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1", "1 columns in '1'; expected 2 columns separated by one tab: id, text; "),
        ("1\ta\tb", "3 columns"),
        ("1\t", "empty text"),
        (" \ttext", "empty id"),
        ("x" * 200, "x" * 60 + r"x*\.\.\.;"),
    ],
)
def test_a_row_of_another_layout_is_an_error(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"t\.tsv, line 3: .*{message}"):
        Line(tmp_path / "t.tsv", 3, text).columns(("id", "text"))


def test_columns_at_tabs_or_at_any_blanks(tmp_path):
    assert Line(tmp_path, 1, "1\ta b").columns(("id", "text")) == ["1", "a b"]
    assert Line(tmp_path, 1, "1 0\td  2").columns(("query", "0", "document", "grade"), None) == [
        "1",
        "0",
        "d",
        "2",
    ]


def test_cells_may_be_empty(tmp_path):
    assert Line(tmp_path, 1, 'a\t\t "b"').cells(("id", "title", "text")) == ["a", "", ' "b"']
    with pytest.raises(
        ValueError,
        match=r"line 7: 2 columns in 'a\\t'; expected 3 columns separated by one tab: id, title, text",
    ):
        Line(tmp_path, 7, "a\t").cells(("id", "title", "text"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb", ["a", "b"]),
        ("a\t", ["a", ""]),
        ('"a ""b"", c"\tl\'d "e"', ['a "b", c', 'l\'d "e"']),
        ('"a\tb"\t""', ["a\tb", ""]),
    ],
)
def test_quoted_cells(tmp_path, text, expected):
    assert Line(tmp_path, 1, text).quoted_cells(("one", "two")) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "1 columns in 'a'; expected 2 columns separated by one tab: one, two"),
        ("a\tb\tc", "3 columns"),
        ('a\t"b', "unexpected end of data, in .*; expected 2 columns"),
        ('"a" b\tc', ".* expected after .* in .*; expected 2 columns"),
        ("a\t" + "b" * 200_000, "field larger than field limit .*; expected 2 columns"),
    ],
)
def test_quoted_cells_of_another_layout_are_errors(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"t\.csv, line 3: {message}"):
        Line(tmp_path / "t.csv", 3, text).quoted_cells(("one", "two"))


def test_the_extension_of_a_packed_file(tmp_path):
    assert [extension(tmp_path / name) for name in ("a.json", "a.b.json.gz", "a.gz", "a")] == [
        ".json",
        ".json",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "1", "text": "a"', r"malformed JSON at column 24 \(Expecting ',' delimiter\)"),
        ("", "malformed JSON at column 1"),
        ("[1, 2]", r"JSON list '\[1, 2\]'; expected a JSON object"),
        (
            '{"id": ' + "9" * 5000 + "}",
            r"JSON that cannot be read \(Exceeds the limit .* digits.*\); expected a JSON object",
        ),
        (
            '{"id": ' + "[" * 100_000,
            r"JSON that cannot be read \(maximum recursion depth .*\); expected a JSON object",
        ),
    ],
)
def test_malformed_json_is_an_error(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"c\.jsonl, line 7: {message}"):
        Line(tmp_path / "c.jsonl", 7, text).json()


@pytest.mark.parametrize(
    "text", ["", "x", "1.0", "1_0", "0x1", "\u0661", "1 0", "9999999999", "9" * 5000, "--1"]
)
def test_numbers_that_tools_read_differently_are_errors(text):
    with pytest.raises(ValueError, match="is not a whole number of at most nine digits"):
        whole_number(text)


def test_whole_numbers():
    assert [whole_number(text) for text in ("0", "-1", "+2", " 3 ", "007", "999999999")] == [
        0,
        -1,
        2,
        3,
        7,
        999999999,
    ]


def test_writable_texts():
    assert [is_writable(text) for text in ("", "naïve \U0001f681", "a\0b", "\ud83d", "\ude81 x")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_json_ids_and_texts(tmp_path):
    line = Line(tmp_path / "c.jsonl", 2, "")
    assert json_id(line, {"_id": "007"}, "id", "_id") == "007"
    assert json_id(line, {"id": 7}, "id") == "7"
    assert [json_text(line, {"text": "a ", "title": None}, key) for key in ("text", "title", "url")] == [
        "a ",
        "",
        "",
    ]
    with pytest.raises(ValueError, match="line 2: text 3; expected a string"):
        json_text(line, {"text": 3}, "text")


@pytest.mark.parametrize("record", [{}, {"id": None}, {"id": 1.5}, {"id": True}, {"id": ["a"]}])
def test_a_record_without_an_id_is_an_error(tmp_path, record):
    with pytest.raises(ValueError, match=r"line 2: id .*; expected a string under id or _id"):
        json_id(Line(tmp_path / "c.jsonl", 2, ""), record, "id", "_id")


def test_a_file_is_found_with_and_without_gz(tmp_path, monkeypatch):
    plain, packed = write(tmp_path / "a.tsv", b""), write(tmp_path / "b.tsv.gz", b"")
    assert find_file(tmp_path / "a.tsv.gz", "data.x") == plain
    assert find_file(tmp_path / "b.tsv", "data.x") == packed
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_file(type(tmp_path)("~/a.tsv"), "data.x") == plain


def test_the_error_for_a_missing_file_names_its_key(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"c\.tsv, nor .*c\.tsv\.gz; set `data.dev` .* data.dev=PATH"):
        find_file(tmp_path / "c.tsv", "data.dev")
