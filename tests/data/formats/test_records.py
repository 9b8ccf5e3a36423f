import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from pyserini_ance.data.formats import records
from pyserini_ance.data.formats.records import read_named_rows, read_records

OBJECTS = [
    {"question": "naïve — \U0001f681?", "text": 'a "quoted" \\ {[ text\n\t', "score": -1.5e-12},
    {"ctxs": [{"a": [1, 2, {}]}, {}], "none": None, "true": True},
    {},
    {"long": "x" * 300},
]


@pytest.mark.parametrize("name", ["list.json", "list.json.gz"])
@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("piece", [1, 2, 7, 1 << 20])
def test_pieces_of_any_size_give_the_same_objects(tmp_path, monkeypatch, name, indent, ascii_only, piece):
    monkeypatch.setattr(records, "PIECE_BYTES", piece)
    text = json.dumps(OBJECTS, indent=indent, ensure_ascii=ascii_only)
    content = f"\ufeff \r\n{text}\n\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    read = list(read_records(tmp_path / name))
    assert [record for _, record in read] == OBJECTS
    starts = [number for number, line in enumerate(text.split("\n"), 2) if line.startswith("    {")]
    assert [line.number for line, _ in read] == (starts if indent else [2] * len(OBJECTS))


@pytest.mark.parametrize("piece", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        (b'[{"a": 1},\n', ["line 2: malformed JSON in item 2", "premature EOF"]),
        (b'[{"a": 1},\n7]', ["line 2, item 2: 7 in a JSON list; expected a JSON object"]),
        (b'[\n{"a": 1,\n "b": x}]', ["line 3: malformed JSON in item 1", "invalid char in json text", "x"]),
        (b'[{},\n{"a": ' + b"9" * 5000 + b"}]", ["line 2: malformed JSON in item 2", "integer overflow"]),
        (b'[{"a": 1},\n{"b":\n "na\xefve"}]', ["line 3: malformed JSON in item 2", "invalid bytes in UTF8"]),
    ],
)
def test_anything_but_a_list_of_objects_is_an_error(tmp_path, monkeypatch, piece, text, fragments):
    monkeypatch.setattr(records, "PIECE_BYTES", piece)
    path = tmp_path / "list.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"list\.json, line") as error:
        list(read_records(path))
    message = str(error.value)
    assert all(fragment in message for fragment in fragments[: 1 if piece == 1 else None]), message
    assert "write it again as one JSON list" in message and len(message) < 1000


CSV = '\n\nid,text,more\n007,"a ""b"", c",\n7,"two\r\nlines\n\nand more",NA\n\n8,2020-01-01,null\n'
ROWS = [
    (4, {"id": "007", "text": 'a "b", c', "more": ""}),
    (5, {"id": "7", "text": "two\nlines\n\nand more", "more": "NA"}),
    (10, {"id": "8", "text": "2020-01-01", "more": "null"}),
]


def read(path, columns=("id", "text")):
    return [(line.number, row) for line, row in read_named_rows(path, columns, "data.x")]


@pytest.mark.parametrize(
    ("name", "change"), [("t.csv", lambda text: text), ("t.tsv", lambda text: text.replace(",", "\t"))]
)
def test_cells_are_not_converted(tmp_path, name, change):
    (tmp_path / name).write_text(change(CSV), newline="")
    (tmp_path / f"{name}.gz").write_bytes(
        gzip.compress(b"\xef\xbb\xbf" + change(CSV).replace("\n", "\r\n").encode())
    )
    expected = [(number, {key: change(value) for key, value in row.items()}) for number, row in ROWS]
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


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_a_missing_column_is_an_error_before_any_row(tmp_path, name):
    if name == "t.parquet":
        pyarrow.parquet.write_table(pyarrow.table({"id": ["1"], "contents": ["a"]}), tmp_path / name)
    else:
        (tmp_path / name).write_text(
            "id,contents\n1,a\n" if name == "t.csv" else '{"id": 1, "contents": "a"}\n'
        )
    with pytest.raises(
        ValueError, match=rf"data\.x: .*{name} has no column text; columns: id, contents; set"
    ):
        read_named_rows(tmp_path / name, ["id", "text"], "data.x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,text\n1,a\n2\n", r"line 3: 1 columns in \['2'\]; expected 2 as in the header: id, text"),
        ('id,text\n1,"a\n2,b\n', "line 2: unexpected end of data; expected cells in double quotes"),
        ("id,text\n1,a\rb\n", "line 2: new-line character seen in unquoted field"),
        ("id,text\n1,a\0\n", "line 2: a NUL byte"),
        ("id,text\n1," + "long " * 1_000_000 + "\n", r"line 2: field larger than field limit \(131072\)"),
    ],
)
def test_malformed_input_is_an_error(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text, newline="")
    with pytest.raises(ValueError, match=rf"t\.csv, {message}") as error:
        read(tmp_path / "t.csv")
    assert len(str(error.value)) < 1000
