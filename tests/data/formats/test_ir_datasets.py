"""A stand-in module with the documented interface of ir_datasets, so that the package is not needed."""

import sys
from collections import namedtuple
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.ir_datasets import IrDatasets

FIELDS = {"doc_id": str, "text": str, "title": str | None, "metadata": dict}
Document = NamedTuple("Document", FIELDS.items())
Old = namedtuple("Old", "doc_id body")
Query = namedtuple("Query", "query_id text")
Asked = namedtuple("Asked", "query_id text answers")
Judged = namedtuple("Judged", "query_id doc_id relevance iteration")


class MarkedUp(NamedTuple):
    doc_id: str
    headline: str
    body: str

    def default_text(self) -> str:
        return f"{self.headline} {self.body}"


class Topic(NamedTuple):
    query_id: str
    title: str

    def default_text(self) -> str:
        return self.title


def dataset(**parts):
    return SimpleNamespace(**{f"{name}_iter": lambda rows=rows: iter(rows) for name, rows in parts.items()})


QRELS = [Judged("q1", "d2", 2, "0"), Judged("q1", "d1", 0, "0")]
TITLED = [Document("d1", "One.", "1", {"url": "u"}), Document("d2", "Two.", None, {})]
MARKED_UP = [MarkedUp("d1", "A", "one"), MarkedUp("d2", "B", "two")]
DATASETS = {
    "beir/few": dataset(docs=TITLED, queries=[]),
    "beir/few/train": dataset(queries=[Query("q1", "which  one"), Query("q2", "nobody judged")], qrels=QRELS),
    "few/asked": dataset(queries=[Asked("q1", "which", ("Two",))], qrels=QRELS),
    "trec/few": dataset(docs=MARKED_UP, queries=[Topic("q1", "a topic")], qrels=QRELS),
    "old/few": dataset(docs=[Old("d1", "one")]),
}


@pytest.fixture
def package(monkeypatch) -> dict:
    module, known = ModuleType("ir_datasets"), dict(DATASETS)
    module.load = known.__getitem__
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    return known


def test_documents_and_splits_come_from_the_named_data_sets(package):
    splits = {"train": "beir/few/train", "asked": "few/asked"}
    collection = IrDatasets(documents="beir/few", splits=splits).read(trained_on={"train"})
    train, asked = collection.split("train"), collection.split("asked")
    assert collection.documents.ids == ["d1", "d2"]
    assert collection.documents.columns == {"text": ["One.", "Two."], "title": ["1", ""]}
    assert (train.queries.ids, train.queries.columns) == (["q1"], {"text": ["which one"]})
    assert [part.tolist() for part in train.qrels.judged(0)] == [[1, 0], [2, 0]]
    assert read_answers(asked.queries, 0) == ["Two"]
    assert collection.skipped == {"train queries without positives": 1}


def test_without_a_text_field_the_default_text_is_used(package):
    collection = IrDatasets(documents="trec/few", splits={"test": "trec/few"}).read()
    assert collection.documents.columns == {"text": ["A one", "B two"]}
    assert collection.split("test").queries.columns == {"text": ["a topic"]}


def broken(*records, error=RuntimeError):
    """Records, after which the parser of ir_datasets stops."""
    yield from records
    raise error("expected 4 columns, got 3")


@pytest.mark.parametrize(
    ("documents", "split", "part", "message"),
    [
        ("beir/fewer", "beir/few/train", {}, "data.documents: ir_datasets has no data set 'beir/fewer'"),
        ("beir/few", "old/few", {}, "data.splits.train: ir_datasets has no queries in 'old/few'; see"),
        ("old/few", "beir/few/train", {}, "ir_datasets/old/few/docs, line 1: a record with the keys 'doc_"),
        ("beir/few", "x", {"queries": [Query(None, "text")]}, "x/queries, line 1: id None; expected a str"),
        ("beir/few", "x", {"qrels": [Judged("q1", "d1", 1.5, "0")]}, "x/qrels, line 1: relevance 1.5; expec"),
        ("beir/few", "x", {"qrels": broken(QRELS[0])}, r"x/qrels, line 2: ir_datasets stops here \(RuntimeE"),
        ("beir/few", "x", {"qrels": broken(error=OSError)}, r"x/qrels, line 1: ir_datasets stops here \(OSE"),
    ],
)
def test_missing_and_malformed_data_is_named(package, documents, split, part, message):
    package["x"] = dataset(**{"queries": [Query("q1", "which")], "qrels": QRELS, **part})
    with pytest.raises(ValueError, match=message):
        IrDatasets(documents=documents, splits={"train": split}).read()


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(RuntimeError, match=r"data.kind is ir_datasets, but .*; install it: python -m pip"):
        IrDatasets(documents="beir/few", splits={}).read()
