import pytest

from pyserini_ance.data.formats.lines import Line, json_id, json_text, whole_number


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "1", "text": "a"', r"malformed JSON at column 24 \(Expecting ',' delimiter\)"),
        ("", "malformed JSON at column 1"),
        ("[1, 2]", r"JSON list '\[1, 2\]'; expected a JSON object"),
        ('{"id": ' + "9" * 5000 + "}", r"JSON that cannot be read \(Exceeds the limit .* digits.*\)"),
        ('{"id": ' + "[" * 100_000, r"JSON that cannot be read \(maximum recursion depth .*\)"),
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
