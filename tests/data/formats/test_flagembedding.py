import json

import pytest

from pyserini_ance.data.formats.flagembedding import FlagEmbedding, text_id

LISTS = {"pos": ["It was 1984.", "1984"], "neg": ["1985", "1984"], "neg_scores": [1, 2]}
TRAIN = [{"query": "which\tyear", "prompt": "Find it.", **LISTS}, {"query": "no negatives", "pos": ["1985"]}]


def write(path, records: list[dict]):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


@pytest.fixture
def recipe(tmp_path):
    return {"splits": {"train": write(tmp_path / "train.jsonl", TRAIN)}}


def relevant(collection) -> list[list[str]]:
    train = collection.split("train")
    return [
        [collection.documents.columns["text"][row] for row in train.known_positives("query").of(query)]
        for query in range(len(train.queries))
    ]


def test_equal_texts_are_one_document(recipe):
    collection = FlagEmbedding(**recipe).read()
    assert collection.documents.columns == {"text": ["It was 1984.", "1984", "1985"]}
    assert collection.documents.ids == [text_id(text) for text in collection.documents.columns["text"]]
    train = collection.split("train")
    assert (train.queries.ids, train.queries.columns["text"]) == (["0", "1"], ["which year", "no negatives"])
    assert relevant(collection) == [["It was 1984.", "1984"], ["1985"]]


def test_a_candidate_pool_replaces_listed_texts(recipe, tmp_path):
    texts = ("other", "1985", "1984", "other", "It was 1984.")
    pool = write(tmp_path / "pool.jsonl", [{"text": text} for text in texts])
    collection = FlagEmbedding(corpus=pool, **recipe).read()
    assert collection.documents.columns["text"] == ["other", "1985", "1984", "It was 1984."]
    assert relevant(collection) == [["It was 1984.", "1984"], ["1985"]]
