"""What holds for every kind that reads files: .gz, missing files, and settings that are kept."""

import gzip
import json
from pathlib import Path

import pytest

from pyserini_ance.recipe.components import component_class

BEIR = {"corpus.jsonl": '{"_id": "d1", "text": "é"}\n', "queries.jsonl": '{"_id": "q1", "text": "q"}\n'}
TSV = {"docs.tsv": "d1\té\n", "queries.tsv": "q1\tq\n", "qrels.tsv": "q1 0 d1 1\n"}
SPLIT = {"queries": "queries.tsv", "qrels": "qrels.tsv"}
CONTEXT = {"passage_id": "1", "title": "", "text": ""}
QUESTION = {"question": "q", "answers": ["é"], "positive_ctxs": [CONTEXT]}
PASSAGE = {"docid": "d1", "text": "é"}
TRAIN = {"query_id": "q1", "query": "q", "positive_passages": [PASSAGE], "negative_passages": []}
# The settings of each kind, and its files.
KINDS = {
    "beir": (
        {"folder": ".", "splits": {"train": "qrels.tsv"}},
        {**BEIR, "qrels.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n"},
    ),
    "datasets": (
        {
            "documents": {"path": "docs.csv", "title": None},
            "queries": {"path": "queries.jsonl"},
            "splits": {"train": {"path": "qrels.tsv"}},
        },
        {
            "docs.csv": "_id,text\nd1,é\n",
            "queries.jsonl": BEIR["queries.jsonl"],
            "qrels.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
        },
    ),
    "dpr": (
        {"passages": "psgs.tsv", "splits": {"train": {"questions": "train.json"}}},
        {"psgs.tsv": 'id\ttext\ttitle\n1\t"é"\tT\n', "train.json": json.dumps([QUESTION], indent=4)},
    ),
    "flagembedding": (
        {"splits": {"train": "train.jsonl"}},
        {"train.jsonl": json.dumps({"query": "q", "pos": ["é"], "neg": ["n"]})},
    ),
    "msmarco_doc": (
        {"documents": "docs.tsv", "splits": {"train": SPLIT}},
        {**TSV, "docs.tsv": "d1\turl\t\té\n"},
    ),
    "msmarco_passage": ({"collection": "docs.tsv", "splits": {"train": SPLIT}}, TSV),
    "pyserini_jsonl": (
        {"corpus": "corpus.jsonl", "splits": {"train": {"topics": "queries.tsv", "qrels": "qrels.tsv"}}},
        {"corpus.jsonl": '{"id": "d1", "contents": "é"}\n', **TSV},
    ),
    "tevatron": ({"splits": {"train": "train.jsonl"}}, {"train.jsonl": json.dumps(TRAIN)}),
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


def test_settings_are_kept(kind):
    cls, settings, _ = kind
    data = cls.model_validate(settings)
    assert cls.model_validate(data.model_dump(mode="json")) == data


def test_packed_and_mapped_files_give_the_same_collection(kind, tmp_path):
    cls, settings, files = kind
    collection = cls.model_validate(settings).read()
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
    name = next(
        name for name in files if "é" in Path(name).read_text() or r"\u00e9" in Path(name).read_text()
    )
    text = Path(name).read_text()
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
