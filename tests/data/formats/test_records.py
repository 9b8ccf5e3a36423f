import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from pyserini_ance.data.formats.records import read_named_rows, read_records

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
def test_cells_are_not_converted(tmp_path, name, separator):
    text = CSV.replace(",", separator)
    (tmp_path / name).write_text(text, newline="")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(f"\ufeff{text}".replace("\n", "\r\n").encode()))
    expected = [(n, {key: value.replace(",", separator) for key, value in row.items()}) for n, row in ROWS]
    assert read(tmp_path / name) == read(tmp_path / f"{name}.gz") == expected


@pytest.mark.parametrize(
    "text", ['{"id": "007", "text": "a"}\n{"id": 7}\n', '[{"id": "007", "text": "a"},\n{"id": 7}]']
)
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
