"""What is written is read back by our own kinds."""

import json

import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.collection_files import write_beir, write_tevatron
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.training_files import Tevatron

DOCUMENTS = Texts(
    ["d1", "007", "é"], {"title": ["One", "", "Ünder"], "text": ['a "b"\tc\nd', "seven", "line\u2028line"]}
)


def split(name: str, ids: list[str], texts: list[str], pairs: list[tuple[int, int, int]]) -> Split:
    queries = Texts(ids, {"text": texts, "answers": [json.dumps([text, "x"]) for text in texts]})
    return Split(name, queries, Qrels.of(*zip(*pairs, strict=True), len(ids)))


@pytest.fixture
def collection() -> Collection:
    train = split("train", ["q1", "q2"], ["which one", "who"], [(0, 2, 1), (0, 0, 1), (1, 1, 1)])
    return Collection(
        DOCUMENTS,
        {"train": train, "test": split("test", ["q2", "q3"], ["who", "what"], [(0, 0, 1), (1, 1, 1)])},
    )


def read_beir(folder) -> Collection:
    return Beir(folder=folder, splits={name: f"qrels/{name}.tsv" for name in ("train", "test")}).read()


def test_where_one_id_is_two_queries_each_has_its_splits_name(collection, tmp_path):
    other = split("test", ["q1"], ["something else"], [(0, 0, 1)])
    write_beir(Collection(DOCUMENTS, {"train": collection.split("train"), "test": other}), tmp_path)
    found = read_beir(tmp_path)
    assert found.split("train").queries.ids == ["train:q1", "train:q2"]
    assert found.split("test").queries.ids == ["test:q1"]
    assert found.split("test").queries.columns == other.queries.columns


def test_tevatron_comes_back(collection, tmp_path):
    write_tevatron(collection, tmp_path)
    files = {name: tmp_path / f"{name}.jsonl" for name in ("train", "test")}
    assert Tevatron(corpus=tmp_path / "corpus.jsonl", splits=files).read().digest == collection.digest
    first = json.loads((tmp_path / "train.jsonl").read_text().split("\n")[0])
    assert first["negative_passages"] == []
    assert [passage["text"] for passage in first["positive_passages"]] == ["line\u2028line", 'a "b"\tc\nd']
