"""Defects of files, for every format: each is an error with its position and a cure, or is skipped and
counted.

`test_damage.py` tests truncated .gz files, NUL bytes, byte order marks and Windows line ends in every file of
every format.
"""

import json

import pytest
from data.formats.damage import judged
from data.formats.kinds import KINDS
from data.formats.samples import WRITTEN, _parquet


def appended(name: str, file: str, line: str) -> dict[str, bytes]:
    return {file: WRITTEN[name].files[file] + line.encode()}


def refused(folder, name: str, changed: dict[str, bytes]) -> str:
    """The error message, which names a file of the folder and is short."""
    target = folder(name, changed)
    with pytest.raises(ValueError) as error:
        KINDS[WRITTEN[name].kind].read(target)
    assert str(target) in str(error.value)
    assert len(str(error.value)) < 1500
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("beir", "qrels/test.tsv", "q1\tnowhere\t1\n"),
        ("beir", "qrels/test.tsv", "nobody\t7\t1\n"),
        ("msmarco_doc", "qrels.tsv", "2 0 nowhere 1\n"),
        ("pyserini_jsonl", "qrels.txt", "01 Q0 nowhere 1\n"),
        ("dpr", "qrels.txt", "0 0 nowhere 1\n"),
        ("flagembedding", "train.jsonl", '{"query": "which", "pos": ["nowhere"]}\n'),
    ],
)
def test_a_judgment_of_an_unknown_id(folder, name, file, line):
    message = refused(folder, name, appended(name, file, line))
    assert "1 judgments of split" in message and f"{file}:" in message
    assert message.endswith("add what is missing, or skip such judgments with data.unknown_ids=skip")


def test_a_judgment_of_an_unknown_id_in_a_parquet_file(folder):
    rows = [{"query-id": "q1", "corpus-id": id, "score": 1} for id in ("7", "nowhere")]
    assert "qrels.parquet:2 q1 nowhere" in refused(folder, "datasets", {"qrels.parquet": _parquet(rows)})


def test_unknown_ids_may_be_skipped_with_a_count(folder):
    """Read the sample of kind msmarco_passage with unknown_ids=skip."""
    read = KINDS["msmarco_passage"].read
    before = read(folder("msmarco_passage"))
    result = read(
        folder("msmarco_passage", appended("msmarco_passage", "qrels.tsv", "1 0 nowhere 1\nnobody 0 7 1\n"))
    )
    assert result["skipped"] == {
        **before["skipped"],
        "test judgments of unknown ids": before["skipped"].get("test judgments of unknown ids", 0) + 2,
    }
    assert result["splits"] == before["splits"]


@pytest.mark.parametrize(
    ("name", "file", "line", "first"),
    [
        ("beir", "corpus.jsonl", '{"_id": "7", "text": "again"}', 1),
        ("beir", "queries.jsonl", '{"_id": "q1", "text": "again"}', 1),
        ("msmarco_doc", "docs.tsv", "D2\tu\tt\tagain", 2),
        ("msmarco_passage", "collection.tsv", "007\tagain", 2),
        ("pyserini_jsonl", "corpus.jsonl", '{"_id": "007", "contents": "again"}', 1),
        ("dpr", "psgs.tsv", "2\tagain\ttitle", 3),
        ("tevatron", "train.jsonl", '{"query_id": "q7", "query": "again", "positive_passages": []}', 1),
        ("datasets", "docs.jsonl", '{"_id": 7, "text": "again"}', 1),
        ("datasets", "queries.csv", "007,again,x", 3),
    ],
)
def test_an_id_given_twice(folder, name, file, line, first):
    message = refused(folder, name, appended(name, file, line))
    assert (
        f"was already given in {message.split(', line')[0]}, line {first}; expected each id once; delete one"
        in message
    )


def test_a_passage_with_two_texts(folder):
    record = {"query_id": "x", "query": "y", "positive_passages": [{"docid": "d3", "text": "other"}]}
    message = refused(folder, "tevatron", appended("tevatron", "train.jsonl", json.dumps(record)))
    assert "line 3: passage 'd3' is" in message and "expected one text for an id" in message


@pytest.mark.parametrize(
    ("name", "file", "lines", "expected"),
    [
        (
            "beir",
            "qrels/test.tsv",
            ("q1\t7", "q1\t7\t1\t1"),
            "3 columns separated by one tab: query-id, corpus-id, score",
        ),
        (
            "msmarco_doc",
            "docs.tsv",
            ("D9\turl\ttitle", "D9\tu\tt\tb\tmore"),
            "4 columns separated by one tab: docid, url, title, body",
        ),
        ("msmarco_doc", "queries.tsv", ("9", "9\ttwo\ttexts"), "2 columns separated by one tab: id, text"),
        ("msmarco_doc", "qrels.tsv", ("2 0 D1", "2 0 D1 3 1"), "4 columns separated by blanks or tabs"),
        (
            "msmarco_passage",
            "collection.tsv",
            ("9", "9\ttwo\ttexts"),
            "2 columns separated by one tab: id, text",
        ),
        (
            "dpr",
            "psgs.tsv",
            ("9\ttext", "9\ttext\ttitle\tmore"),
            "3 columns separated by one tab: id, text, title",
        ),
        (
            "dpr",
            "test.qa.csv",
            ("why", "why\t['a']\tmore"),
            "2 columns separated by one tab: question, answers",
        ),
        ("dpr", "qrels.txt", ("0 0 2", "0 0 2 1 1"), "4 columns separated by blanks or tabs"),
        ("datasets", "queries.csv", ("q9,text", "q9,text,x,more"), "3 as in the header: _id, text, more"),
        (
            "top1000",
            "top1000.dev",
            ("1\t9\twhich", "1\t9\twhich\ttext\tmore"),
            "4 columns separated by one tab",
        ),
        (
            "qidpidtriples",
            "qidpidtriples.train.full.2.tsv",
            ("1\t8", "1\t8\t9\t7"),
            "3 columns separated by one tab: query id, positive id",
        ),
        (
            "triples",
            "triples.train.small.tsv",
            ("who\tx", "who\tx\ty\tz"),
            "3 columns separated by one tab: query, positive, negative",
        ),
        (
            "ranks",
            "run.tsv",
            ("1 8", "1 8 3 4"),
            "3 columns separated by blanks or tabs: query, document, rank",
        ),
        (
            "run",
            "run.trec",
            ("1 Q0 9 3 1.5", "1 Q0 9 3 1.5 tag more"),
            "6 columns separated by blanks or tabs",
        ),
        ("qrels", "qrels.txt", ("1 0 9", "1 0 9 1 1"), "4 columns separated by blanks or tabs"),
    ],
)
def test_a_missing_and_an_extra_column(folder, name, file, lines, expected):
    number = WRITTEN[name].files[file].count(b"\n") + 1
    for line in lines:
        message = refused(folder, name, appended(name, file, line))
        assert f"{file}, line {number}: " in message and f"; expected {expected}" in message


@pytest.mark.parametrize(
    ("name", "file", "record"),
    [
        ("beir", "queries.jsonl", {"_id": "q9", "text": "code", "answers": "CODE"}),
        ("pyserini_jsonl", "topics.jsonl", {"id": "9", "title": "code", "answers": "CODE"}),
        (
            "tevatron",
            "dev.jsonl",
            {"query_id": "9", "query": "code", "answers": "CODE", "positive_passages": []},
        ),
        ("dpr", "test.qa.csv", {"question": "code", "answer": "CODE"}),
        ("dpr", "test.qa.csv", None),
        (
            "negative_passages",
            "train.jsonl",
            {
                "query_id": "9",
                "query": "code",
                "answers": "CODE",
                "positive_passages": [],
                "negative_passages": [],
            },
        ),
    ],
)
def test_code_in_answers_is_an_error_and_is_not_run(folder, tmp_path, name, file, record):
    mark = tmp_path / "mark"
    code = f"[open({str(mark)!r}, 'w').name]"
    line = json.dumps(record).replace("CODE", code) if record else f"code\t{code}"
    old = b"" if file == "dev.jsonl" else WRITTEN[name].files[file]
    message = refused(folder, name, {file: old + line.encode()})
    assert "expected a list of strings" in message or "expected a Python list of strings" in message
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "file"),
    [(name, file) for name, sample in WRITTEN.items() for file in sample.files if ".parquet" not in file],
)
def test_a_line_of_5_mb_is_read_or_gives_a_short_error(folder, name, file):
    """The last word of the last line is replaced by one of 5 MB; the reference reader decides what is
    right.
    """
    raw = WRITTEN[name].files[file]
    target = raw.rstrip(b'\n"]}').rfind(b" ") + 1 or len(raw) // 2
    result = judged(
        WRITTEN[name].kind, folder(name, {file: raw[:target] + b"long" * 1_310_720 + raw[target:]}), {}
    )
    assert result[1] == ""
