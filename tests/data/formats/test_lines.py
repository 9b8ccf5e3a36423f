import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from pyserini_ance.data.formats.lines import Line, find_file, grade_of, read_lines
from pyserini_ance.data.formats.records import read_named_rows, read_records

IDS = ['{"id": "007", "text": "a"}\n{"id": 7}\n', '[{"id": "007", "text": "a"},\n{"id": 7}]']


def write(path, content: bytes):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("t", b"1\ta\n2\tb\0d\n", "line 2: a NUL byte, as in UTF-16; expected UTF-8; unpack .* -f UTF-16 "),
        ("t", b"a\nna\xefve\n", r"line 2: byte 0xef, near b'na\\xefve'; expected UTF-8; .*iconv"),
        ("t", gzip.compress(b"1\tgood\n", mtime=0x7F7F7F7F), "line 1: .* expected UTF-8; unpack"),
        ("t", b"1\tgood\n\xef\xbb\xbf2\tbad\n", "line 2: a byte order mark"),
        ("t", "1\tgood\n".encode("utf-16")[:-1], r"line 1: damaged UTF-16 file .*; expected a whole file"),
        ("t.gz", b"", r"line 1: damaged gzip file \(it is empty\); .*download it again"),
        *(
            ("t.gz", gzip.compress(bytes(range(32, 120)) * 9, mtime=0)[cut], r"line \d+: damaged gzip file")
            for cut in (slice(0, -9), slice(0, 40), slice(20, None))
        ),
    ],
)
def test_bytes_that_are_not_text_are_errors(tmp_path, name, raw, message):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(ValueError, match=rf"{name}, {message}"):
        list(read_lines(tmp_path / name))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["t.tsv", "t.tsv.gz"])
def test_a_byte_order_mark_says_the_encoding(tmp_path, encoding, name):
    path = write(tmp_path / name, "1\tStraße\r\n2\tgut\r\n".encode(encoding))
    assert [line.text for line in read_lines(path)] == ["1\tStraße", "2\tgut"]
    listed = write(tmp_path / f"{name}.json", '[{"id": "ß"}]'.encode(encoding))
    assert [record.values for record in read_records(listed)] == [{"id": "ß"}]


@pytest.mark.parametrize("start", ['[{"id": "a"}, ', '[{"id": ', ""])
def test_lists_in_each_other_are_refused_before_they_fill_the_memory(tmp_path, start):
    path = write(tmp_path / "t.json", start.encode() + b"[" * 100_000)
    with pytest.raises(ValueError, match=r"t.json, item \d: malformed JSON \(1,000 lists in each other\)"):
        list(read_records(path))


def test_a_file_is_found_with_and_without_gz(tmp_path, monkeypatch):
    plain, packed = write(tmp_path / "a.tsv", b""), write(tmp_path / "b.tsv.gz", b"")
    assert find_file(tmp_path / "a.tsv.gz", "data.x") == plain
    assert find_file(tmp_path / "b.tsv", "data.x") == packed
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_file(type(tmp_path)("~/a.tsv"), "data.x") == plain
    with pytest.raises(FileNotFoundError, match=r"c\.tsv, nor .*c\.tsv\.gz; set `data.dev` .* data.dev=PATH"):
        find_file(tmp_path / "c.tsv", "data.dev")


def test_values_of_a_row(tmp_path):
    def line(text: str) -> Line:
        return Line(tmp_path, 1, text)

    texts = ("0", "-1", "+2", " 3 ", "007", "999999999")
    assert [grade_of(line(text), text) for text in texts] == [0, -1, 2, 3, 7, 999999999]
    assert line("1\ta b").cells(("id", "text"), filled=True) == ["1", "a b"]
    with pytest.raises(ValueError, match=r"line 1: 'qid\\ttext' is a header; .* id, text; correct or del"):
        line("qid\ttext").cells(("id", "text"))
    assert line("1 0\td  2").cells(("query", "0", "document", "grade"), None) == ["1", "0", "d", "2"]
    assert line('a\t\t "b"').cells(("id", "title", "text")) == ["a", "", ' "b"']
    for text, expected in (
        ("a\t", ["a", ""]),
        ('"a ""b"", c"\tl\'d "e"', ['a "b", c', 'l\'d "e"']),
        ('"a\tb"\t""', ["a\tb", ""]),
    ):
        assert line(text).cells(("one", "two"), is_quoted=True) == expected


NAMES = ("id", "text")
READERS = {
    "columns": lambda line: line.cells(NAMES, filled=True),
    "quoted": lambda line: line.cells(NAMES, is_quoted=True),
    "json": Line.json,
    "grade": lambda line: grade_of(line, line.text),
}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("columns", "1", "1 columns in '1'; expected 2 columns separated by one tab: id, text; "),
        ("columns", "1\ta\tb", "3 columns"),
        ("columns", "1\t", "an empty column"),
        ("columns", "query-id\tcorpus-id\tscore", "'query-id.* is a header; expected 2 columns .*; cor"),
        ("columns", "1\ta\r2\tb\r3\tc", r"4 columns in .*; if \\r ends its lines, as on old Macs: tr"),
        ("columns", "x" * 200, "1 columns in '" + "x" * 60 + r"x*\.\.\.;"),
        ("quoted", "a", "1 columns in 'a'; expected 2 columns separated by one tab: id, text"),
        ("quoted", "a\t" + "b" * 200_000, "field larger than field limit .*; expected 2 columns"),
        ("json", '{"id": "1", "text": "a"', r"malformed JSON \(Expecting ',' delimiter: line 1 column 24"),
        ("json", '{"id": "1", "id": "1"}', r"malformed JSON \(the key 'id' is repeated\) near '{\"id\": "),
        ("json", '{"id": "1", "m": [{"x": 1, "x": 2}]}', r"malformed JSON \(the key 'x' is repeated\)"),
        ("json", '{"id": "1"}\r{"id": "2"}', r"malformed JSON \(Extra data.*as on old Macs"),
        ("json", "[1, 2]", r"JSON list '\[1, 2\]'; expected a JSON object"),
        ("json", '{"id": ' + "9" * 5000 + "}", r"malformed JSON \(Exceeds the limit .* digits.*\)"),
        ("json", '{"id": ' + "[" * 100_000, r"malformed JSON \(maximum recursion depth .*\)"),
        *(
            ("grade", text, f"grade .*{text[:60]}.*; expected a whole number of at most nine digits; correct")
            for text in ("", "x", "1.5", ".0", "1_0", "0x1", "\u0661", "1 0", "9999999999", "9" * 5000, "--1")
        ),
    ],
)
def test_a_line_of_another_layout_is_an_error(tmp_path, kind, text, message):
    with pytest.raises(ValueError, match=rf"t\.tsv, line 3: {message}") as error:
        READERS[kind](Line(tmp_path / "t.tsv", 3, text))
    assert len(str(error.value)) < 1000


OBJECTS = [
    {"question": "naïve — \U0001f681?", "text": 'a "quoted" \\ {[ text\n\t', "score": -1.5e-12},
    {"ctxs": [{"a": [1, 2, {}]}, {}], "none": None, "true": True},
    {},
    {"long": "x" * 300_000},
]


@pytest.mark.parametrize("name", ["list.json", "list.json.gz"])
@pytest.mark.parametrize("indent", [None, 4])
def test_a_list_is_read_item_by_item(tmp_path, name, indent):
    content = f"\ufeff \r\n{json.dumps(OBJECTS, indent=indent, ensure_ascii=indent is None)}\n\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    read = list(read_records(tmp_path / name))
    assert [record.values for record in read] == OBJECTS
    assert read[2].line.place == f"{tmp_path / name}, item 3"


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        (b'[{"a": 1},\n', ["item 2: malformed JSON", "premature EOF"]),
        (b'[{"a": 1},\n7]', ["item 2: 7; expected a JSON object"]),
        (b'[\n{"a": 1,\n "b": x}]', ["item 1: malformed JSON", "invalid char in json text", "x"]),
        (b'[{},\n{"a": ' + b"9" * 5000 + b"}]", ["item 2: malformed JSON", "integer overflow"]),
        (b'[{"a": 1},\n{"b":\n "na\xefve"}]', ["item 2: malformed JSON", "invalid bytes in UTF8"]),
        (b'[{"a": 1}]\n{}', ["item 2: malformed JSON", "trailing garbage"]),
        (b'[{"a": 1},\n{"b": 1, "a": [{"c": 1, "c": 1}]}]', ["item 2: malformed JSON", "'c' is repeated"]),
    ],
)
def test_anything_but_a_list_of_objects_is_an_error(tmp_path, text, fragments):
    path = tmp_path / "list.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"list\.json, item") as error:
        list(read_records(path))
    assert all(fragment in str(error.value) for fragment in fragments), error.value
    assert "write it again as one JSON list" in str(error.value) and len(str(error.value)) < 1000


CSV = '\n\nid,text,more\n007,"a ""b"", c",\n7,"two\r\nlines\n\nand more",NA\n\n8,2020-01-01,null\n'
ROWS = [
    (4, {"id": "007", "text": 'a "b", c', "more": ""}),
    (5, {"id": "7", "text": "two\nlines\n\nand more", "more": "NA"}),
    (10, {"id": "8", "text": "2020-01-01", "more": "null"}),
]


def read(path, columns=("id", "text")):
    return [(row.line.number, row.values) for row in read_named_rows(path, columns, "data.x")]


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ","), ("t.tsv", "\t")])
def test_cells_are_not_converted(tmp_path, name, separator, caplog):
    text = CSV.replace(",", separator)
    (tmp_path / name).write_text(text, newline="")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(f"\ufeff{text}".replace("\n", "\r\n").encode()))
    expected = [(n, {key: value.replace(",", separator) for key, value in row.items()}) for n, row in ROWS]
    assert read(tmp_path / name) == read(tmp_path / f"{name}.gz") == expected
    assert ("a quote begins a cell of several lines (rows: 1)" in caplog.text) == (separator == "\t")


@pytest.mark.parametrize("text", IDS)
def test_objects_one_per_line_or_in_one_list(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    assert read(tmp_path / "t.json") == [(1, {"id": "007", "text": "a"}), (2, {"id": 7})]


def test_parquet_reads_only_the_requested_columns(tmp_path):
    rows = [{"id": str(n), "text": f"text {n}", "other": n} for n in range(3)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet", row_group_size=2)
    assert read(tmp_path / "t.parquet") == [(n + 1, {"id": str(n), "text": f"text {n}"}) for n in range(3)]
    with pytest.raises(ValueError, match=r"data\.x: .*t\.parquet has no column x; columns: id, text, other"):
        read(tmp_path / "t.parquet", ("id", "x"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "id,contents\n1,a\n", "data.x: .*t.csv has no column text; columns: id, contents; set"),
        ("t.jsonl", '{"id": 1, "contents": "a"}\n', "data.x: .*t.jsonl has no column text; columns: id, con"),
        ("t.csv", "id,text\n1,a\n2\n", r"t.csv, line 3: 1 columns in \['2'\]; expected 2 as in the header"),
        ("t.csv", 'id,text\n1,"a\n2,b\n', "t.csv, line 2: unexpected end of data; expected cells in double"),
        ("t.csv", "id,text\n1,a\rb\n", "t.csv, line 2: new-line character seen in unquoted field"),
        ("t.csv", "id,text\n1,a\0\n", "t.csv, line 2: a NUL byte"),
        ("t.csv", "id,text\n1," + "long " * 1_000_000, r"t.csv, line 2: field larger than .* \(131072\)"),
    ],
)
def test_malformed_input_is_an_error(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, newline="")
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path / name)
    assert len(str(error.value)) < 1000
