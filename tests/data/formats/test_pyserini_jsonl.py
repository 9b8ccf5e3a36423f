import gzip

import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl

CORPUS = (
    '{"id": "007", "contents": "A spy.\\nIn two lines."}\n'
    '{"docid": 7, "title": "Seven", "text": "A number."}\n'
)


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(CORPUS)
    (tmp_path / "topics.tsv").write_text("01\twhich  spy\n1\twhich number\n")
    (tmp_path / "qrels.txt").write_text("01 Q0 007 1\n1\t0\t7\t1\n")
    split = {"topics": tmp_path / "topics.tsv", "qrels": tmp_path / "qrels.txt"}
    return {"corpus": tmp_path / "corpus.jsonl", "splits": {"test": split}}


def test_the_files_are_read(recipe):
    collection = PyseriniJsonl(**recipe).read()
    test = collection.split("test")
    assert collection.documents.ids == ["007", "7"]
    texts = ["A spy.\nIn two lines.", "A number."]
    assert collection.documents.columns == {"title": ["", "Seven"], "text": texts}
    assert test.queries.ids == ["01", "1"] and test.queries[0] == {"text": "which spy"}
    assert [test.known_positives("query").of(row).tolist() for row in range(2)] == [[0], [1]]


PAGES = (
    '{"id": "D1", "contents": "http://a.org/\\nA title\\nBody\\nof A"}\n'
    '{"id": "D2", "contents": "http://b.org/\\n\\n"}\n'
)


@pytest.mark.parametrize(
    "last", ["", '{"id": "D3", "url": "u", "title": null, "text": "Of C", "contents": "u\\n\\nOf C"}\n']
)
def test_fields_are_lines_of_contents_or_keys(tmp_path, last):
    """As in `pyserini.encode --fields`, except that the last field takes all remaining lines."""
    (tmp_path / "corpus.jsonl").write_text(PAGES + last)
    data = PyseriniJsonl(corpus=tmp_path / "corpus.jsonl", fields=["url", "title", "text"])
    documents = data.read().documents
    assert documents.take(range(len(documents)))[:2] == [
        {"url": "http://a.org/", "title": "A title", "text": "Body\nof A"},
        {"url": "http://b.org/", "title": "", "text": ""},
    ]
    assert not last or documents[2] == {"url": "u", "title": "", "text": "Of C"}


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"id": "2", "contents": "b"}\n')
    (tmp_path / "c.json").write_text('{"id": "3", "contents": "c"}\n')
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id": "1", "contents": "a"}\n'))
    (tmp_path / ".hidden.jsonl").write_text('{"id": "0", "contents": "hidden"}\n')  # as Anserini does
    (tmp_path / "README.txt").write_text("no corpus")
    collection = PyseriniJsonl(corpus=tmp_path).read()
    assert collection.documents.ids == ["0", "1", "2", "3"]
    assert collection.splits == {}


def test_questions_with_answers_need_no_qrels(recipe, tmp_path):
    topics = tmp_path / "topics.jsonl"
    topics.write_text('{"id": "0", "title": "which spy", "answers": ["Bond"]}\n{"id": "1", "title": "who"}\n')
    test = PyseriniJsonl(corpus=recipe["corpus"], splits={"test": {"topics": topics}}).read().split("test")
    assert (test.queries.ids, test.is_judged, read_answers(test.queries, 0)) == (["0", "1"], False, ["Bond"])


@pytest.mark.parametrize(
    ("settings", "files", "message"),
    [
        ({}, {"corpus.jsonl": '{"id": "1", "body": "x"}'}, "its text under `text` or `contents`; .*`data.fi"),
        (
            {"fields": ["url", "text"]},
            {"corpus.jsonl": '{"id": "1", "contents": "One line."}'},
            "contents of 1 lines: 'One line.'; expected a line each for url, text; correct `data",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error(recipe, tmp_path, settings, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        recipe["splits"]["test"]["topics"] = tmp_path / (name if "topics" in name else "topics.tsv")
    with pytest.raises(ValueError, match=message):
        PyseriniJsonl(**recipe, **settings).read()
