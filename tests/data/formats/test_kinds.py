"""What holds for every kind that reads files: .gz, missing files, and settings that are kept."""

import gzip
import json
from pathlib import Path

import pytest

from pyserini_ance.recipe.components import component_class

BEIR = {"corpus.jsonl": '{"_id": "d1", "text": "é"}\n', "queries.jsonl": '{"_id": "q1", "text": "q"}\n'}
TSV = {"docs.tsv": "d1\té\n", "queries.tsv": "q1\tq\n", "qrels.tsv": "q1 0 d1 1\n"}
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"
SPLIT = {"topics": "queries.tsv", "qrels": "qrels.tsv"}
CONTEXT = {"passage_id": "1", "title": "", "text": ""}
QUESTION = {"question": "q", "answers": ["é"], "positive_ctxs": [CONTEXT]}
PASSAGE = {"docid": "d1", "text": "é"}
TRAIN = {"query_id": "q1", "query": "q", "positive_passages": [PASSAGE], "negative_passages": []}
# The settings of each kind, and its files.
KINDS = {
    "beir": ({"folder": ".", "splits": {"train": "qrels.tsv"}}, {**BEIR, "qrels.tsv": QRELS}),
    "datasets": (
        {
            "documents": {"path": "docs.csv", "columns": {"title": None}},
            "queries": {"path": "queries.jsonl"},
            "splits": {"train": {"path": "qrels.tsv"}},
        },
        {"docs.csv": "_id,text\nd1,é\n", "queries.jsonl": BEIR["queries.jsonl"], "qrels.tsv": QRELS},
    ),
    "dpr": (
        {"passages": "psgs.tsv", "splits": {"train": {"questions": "train.json"}}},
        {"psgs.tsv": 'id\ttext\ttitle\n1\t"é"\tT\n', "train.json": json.dumps([QUESTION], indent=4)},
    ),
    "flagembedding": (
        {"splits": {"train": "train.jsonl"}},
        {"train.jsonl": json.dumps({"query": "q", "pos": ["é"], "neg": ["n"]}) + "\n"},
    ),
    "msmarco_doc": (
        {"corpus": "docs.tsv", "splits": {"train": SPLIT}},
        {**TSV, "docs.tsv": "d1\turl\t\té\n"},
    ),
    "msmarco_passage": ({"corpus": "docs.tsv", "splits": {"train": SPLIT}}, TSV),
    "pyserini_jsonl": (
        {"corpus": "corpus.jsonl", "splits": {"train": {"topics": "queries.tsv", "qrels": "qrels.tsv"}}},
        {"corpus.jsonl": '{"id": "d1", "contents": "é"}\n', **TSV},
    ),
    "tevatron": ({"splits": {"train": "train.jsonl"}}, {"train.jsonl": json.dumps(TRAIN) + "\n"}),
}


@pytest.fixture(params=KINDS)
def kind(request, tmp_path, monkeypatch):
    """The kind, with its settings, and the files that it reads, in the working directory."""
    monkeypatch.chdir(tmp_path)
    settings, files = KINDS[request.param]
    used = [name for name in files if name in json.dumps(settings) or request.param == "beir"]
    for name in used:
        Path(name).write_text(files[name])
    return component_class("data", request.param), {"kind": request.param, **settings}, used


def test_settings_are_kept_and_packed_and_mapped_files_give_the_same_collection(kind, tmp_path):
    cls, settings, files = kind
    data = cls.model_validate(settings)
    assert cls.model_validate(data.model_dump(mode="json")) == data
    collection = data.read()
    (positive,) = collection.split("train").qrels.relevant(0)
    assert "é" in collection.documents[positive].values() and len(collection.split("train").queries) == 1
    assert cls.model_validate(settings).read(tmp_path / "documents.arrow").digest == collection.digest
    if cls.__name__ != "Datasets":  # where a path is that of a file
        for name in files:
            Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
            Path(name).unlink()
        assert cls.model_validate(settings).read().digest == collection.digest


def test_the_error_for_a_missing_file_names_its_key(kind):
    cls, settings, files = kind
    for name in files if cls.__name__ != "Datasets" else ():
        text = Path(name).read_text()
        Path(name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"{name}, nor .*{name}\.gz; set `data\."):
            cls.model_validate(settings).read()
        Path(name).write_text(text)


def test_texts_are_kept_whatever_characters_they_hold(kind):
    """A lone \\r and double quotes are part of a text; a NUL is an error that names file and line."""
    cls, settings, files = kind
    texts = {name: Path(name).read_text() for name in files}
    name, text = next(pair for pair in texts.items() if "é" in pair[1] or r"\u00e9" in pair[1])
    has_quotes = name.endswith((".csv", "psgs.tsv"))
    special, json_text = 'é\r"x" \r', 'é\\r\\"x\\" \\r.'
    changed = json_text if "json" in name else '"é ""x"""' if has_quotes else f"{special}."
    old = "é" if "é" in text else r"\u00e9"
    old = f'"{old}"' if name == "psgs.tsv" else old
    Path(name).write_text(text.replace(old, changed), newline="")
    values = cls.model_validate(settings).read().documents
    expected = 'é "x"' if has_quotes else f"{special}."
    if name != "train.json":
        assert any(expected in values[row].values() for row in range(len(values)))
    Path(name).write_text(text.replace(old, "x\\u0000" if "json" in name else "x\0"))
    with pytest.raises(ValueError, match=rf"{name}, line \d"):
        cls.model_validate(settings).read()


def flag(**change) -> str:
    return json.dumps({"query": "x", "pos": ["y"]} | change)


def tevatron(**change) -> str:
    return json.dumps(TRAIN | {"query_id": "x"} | change)


@pytest.mark.parametrize(
    ("name", "file", "line", "message"),
    [
        ("beir", "corpus.jsonl", '{"id": "d4", "text": "x"}', "line 2: id None; .*'id, text', .*`data.kind`"),
        ("beir", "corpus.jsonl", '{"_id": "d4", "text": ["x"]}', r"line 2: text \['x'\]; expected a string"),
        ("flagembedding", "train.jsonl", flag(pos="text"), "line 2: pos 'text'; expected a list"),
        ("flagembedding", "train.jsonl", flag(neg=[{"text": "x"}]), "line 2: neg .*; expected a list"),
        ("msmarco_doc", "docs.tsv", "D4\tu\tno body", "line 2: 3 columns in .*; .*: docid, url, title, body"),
        ("msmarco_doc", "docs.tsv", "D4\t \t\t", "line 2: document 'D4' is empty; .* url or title or text"),
        ("msmarco_passage", "docs.tsv", "8\t ", "line 2: document '8' is .*empty_documents in data.skip"),
        ("pyserini_jsonl", "corpus.jsonl", '{"contents": "x"}', "line 2: id None; .*id or _id or docid"),
        ("tevatron", "train.jsonl", tevatron(answers="1984"), "line 2: answers '1984'; expected a list"),
        (
            "tevatron",
            "train.jsonl",
            tevatron(negative_passages=[{"docid": "d1", "text": "other"}]),
            "line 2: passage 'd1' is .*other.*it has another text in .*line 1",
        ),
    ],
)
def test_a_line_that_is_malformed_is_named(tmp_path, monkeypatch, name, file, line, message):
    monkeypatch.chdir(tmp_path)
    settings, files = KINDS[name]
    for one, text in files.items():
        Path(one).write_text(text + (f"{line}\n" if one == file else ""))
    with pytest.raises(ValueError, match=message) as error:
        component_class("data", name).model_validate(settings).read()
    assert file in str(error.value)
