import gzip

import pyarrow
import pyarrow.parquet
import pytest

from pyserini_ance.data.formats.records import is_supported, read_named_rows

CSV = 'id,text,more\n007,"a ""b"", c",\n7,"two\r\nlines\n\nand more",NA\n\n8,2020-01-01,null\n'
ROWS = [
    (2, {"id": "007", "text": 'a "b", c', "more": ""}),
    (3, {"id": "7", "text": "two\nlines\n\nand more", "more": "NA"}),
    (8, {"id": "8", "text": "2020-01-01", "more": "null"}),
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
        ValueError,
        match=rf"data\.x: .*{name} has no column text; columns: id, contents; "
        r"set the names of the columns under data\.x",
    ):
        read_named_rows(tmp_path / name, ["id", "text"], "data.x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: no header; expected the names of the columns in the first line"),
        ("\nid,text\n", r"line 1: a header \[\]"),
        ("id,text,id\n", "line 1: a header .*; expected the names of the columns, each once"),
        (
            "id,text\n1,a\n2\n",
            r"line 3: 1 columns in \['2'\]; expected 2 as in the header: id, text; correct or delete the "
            r"line",
        ),
        ("id,text\n1,a,b\n2,c\n", "line 2: 3 columns in .*; expected 2 as in the header"),
        ('id,text\n1,"a\n2,b\n', "line 2: unexpected end of data; expected cells in double quotes"),
        ('id,text\n1,"a" b\n', "line 2: ',' expected after '\"'"),
        ("id,text\n1,a\rb\n", "line 2: new-line character seen in unquoted field"),
        ("id,text\n1,a\0\n", "line 2: a NUL byte at column 4"),
        (
            "id,text\n1," + "long " * 1_000_000 + "\n",
            r"line 2: field larger than field limit \(131072\); .* write the table as \.jsonl",
        ),
    ],
)
def test_malformed_input_is_an_error(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text, newline="")
    with pytest.raises(ValueError, match=rf"t\.csv, {message}") as error:
        read(tmp_path / "t.csv")
    assert len(str(error.value)) < 1000


def test_a_damaged_parquet_file_is_an_error(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"id": ["1"], "text": ["a"]}), tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-9])
    with pytest.raises(
        ValueError,
        match=r"t\.parquet, line 1: a row that cannot be read .*; expected a whole parquet file; copy or "
        r"download",
    ):
        read(tmp_path / "t.parquet")


def test_supported_extensions(tmp_path):
    names = ("a.csv", "a.tsv.gz", "a.json", "a.jsonl.gz", "a.parquet", "a.parquet.gz", "a.txt", "a")
    assert [is_supported(tmp_path / name) for name in names] == [True] * 5 + [False] * 3
