import json
import os

import datasets
import huggingface_hub
import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.datasets import Datasets

DOCUMENTS = [{"_id": "d1", "title": "One", "text": "first"}, {"_id": "d2", "title": None, "text": "second"}]
QUERIES = [{"_id": "q1", "text": "which  one", "answers": ["1"]}, {"_id": "q2", "text": "two", "answers": []}]
JUDGED = {"train": [("q1", "d1", 2.0), ("q1", "d2", 0.0)], "test": [("q2", "d2", 1.0)]}
COLUMNS = ("query-id", "corpus-id", "score")
QRELS = {name: [dict(zip(COLUMNS, row, strict=True)) for row in rows] for name, rows in JUDGED.items()}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep the cache of the package datasets in the test's folder, and never contact the hub."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def recipe(tmp_path):
    """Documents as .jsonl, queries as .parquet, and judgments as a folder written by save_to_disk."""
    (tmp_path / "corpus.jsonl").write_text(lines(DOCUMENTS))
    datasets.Dataset.from_list(QUERIES).to_parquet(tmp_path / "queries.parquet")
    tables = {name: datasets.Dataset.from_list(rows) for name, rows in QRELS.items()}
    datasets.DatasetDict(tables).save_to_disk(tmp_path / "qrels")
    judgments = {"path": str(tmp_path / "qrels")}
    return {
        "documents": {"path": str(tmp_path / "corpus.jsonl")},
        "queries": {"path": str(tmp_path / "queries.parquet"), "columns": {"answers": "answers"}},
        "splits": {"train": judgments, "dev": {**judgments, "split": "test"}},
    }


def test_three_kinds_of_tables_are_read(recipe):
    collection = Datasets(**recipe).read()
    train, dev = collection.split("train"), collection.split("dev")
    assert collection.documents.ids == ["d1", "d2"]
    assert collection.documents.columns == {"title": ["One", ""], "text": ["first", "second"]}
    assert (train.queries.ids, train.queries.columns["text"]) == (["q1"], ["which one"])
    assert read_answers(train.queries, 0) == ["1"]
    assert [part.tolist() for part in train.qrels.judged(0)] == [[0, 1], [2, 0]]
    assert (dev.queries.ids, dev.known_positives("query").of(0).tolist()) == (["q2"], [1])


def test_a_folder_is_loaded_again_whatever_its_times(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "folder" / "corpus.jsonl"
    file.parent.mkdir()
    recipe["documents"] = {"path": "~/folder", "split": "train"}
    for text in ("first", "other"):
        file.write_text(lines([{**DOCUMENTS[0], "text": text}, DOCUMENTS[1]]))
        os.utime(file, (1, 1))
        assert Datasets(**recipe).read().documents.columns["text"] == [text, "second"]


def test_local_files_are_known_and_hub_names_are_not(recipe, tmp_path):
    assert Datasets(**recipe).shows_changes
    recipe["splits"]["test"] = {"path": "BeIR/nfcorpus-qrels"}
    data = Datasets(**recipe)
    assert not data.shows_changes
    listed = data.files()
    files = {"documents": "corpus.jsonl", "queries": "queries.parquet"}
    assert dict(listed[:2]) == {f"data.{part}.path": tmp_path / name for part, name in files.items()}
    files = {str(file.relative_to(tmp_path)) for file in data.input_files()}
    assert {"corpus.jsonl", "queries.parquet", "qrels/dataset_dict.json", "qrels/test/state.json"} <= files
    assert {key for key, _ in listed[2:]} == {"data.splits.train.path", "data.splits.dev.path"}


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("documents", {"columns": {"text": "body"}}, "data.documents: .* has no column body; columns: _id"),
        ("documents", {"path": "no/such-set"}, "data.documents: .* cannot load Table.*no/such-set"),
        ("documents", {"path": "scripted"}, "data.documents: .* cannot load .*scripts are no longer supp"),
        ("documents", {"columns": {"titel": None}}, "documents.columns: titel: None; .* id, title, text;"),
        ("train", {"columns": {"query": None}}, "splits.train.columns: query: None; .* document, grade;"),
        ("train", {"split": "dev"}, "data.splits.train: the package datasets cannot load .*'dev'"),
    ],
)
def test_malformed_input_is_an_error(recipe, part, change, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripted").mkdir()
    (tmp_path / "scripted" / "scripted.py").touch()
    section = recipe["splits"] if part in recipe["splits"] else recipe
    section[part] = {**section[part], **change}
    with pytest.raises(ValueError, match=message):
        Datasets(**recipe).read()
