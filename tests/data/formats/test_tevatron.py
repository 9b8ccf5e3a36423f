import json

import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.formats.tevatron import Tevatron


def passage(id: str, text: str | None = None) -> dict:
    return {"docid": id, "title": f"T{id}", "text": text or f"text of {id}"}


def record(id: str, query: str, positive=(), negative=(), **more) -> dict:
    lists = {
        "positive_passages": [passage(one) for one in positive],
        "negative_passages": [passage(one) for one in negative],
    }
    return {"query_id": id, "query": query, **lists, **more}


RECORDS = {
    "train.jsonl": [
        record("q7", "which  year", ["d2", "d1"], ["d3", "d2"], answers=["1984"]),
        record("q8", "nothing", [], ["d4"]),
    ],
    "dev.jsonl": [record("9", "who", ["d5"], ["d1"])],
}


def write(path, records: list[dict]):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


@pytest.fixture
def recipe(tmp_path):
    return {
        "splits": {name.split(".")[0]: write(tmp_path / name, records) for name, records in RECORDS.items()}
    }


def relevant(collection, split: str) -> list[list[str]]:
    result = collection.split(split)
    return [
        [collection.documents.ids[row] for row in result.known_positives("query").of(query)]
        for query in range(len(result.queries))
    ]


def test_documents_are_the_listed_passages(recipe):
    collection = Tevatron(**recipe).read()
    train = collection.split("train")
    assert collection.documents.ids == ["d2", "d1", "d3", "d4", "d5"]
    assert collection.documents[0] == {"title": "Td2", "text": "text of d2"}
    assert (train.queries.ids, train.queries.columns["text"], read_answers(train.queries, 0)) == (
        ["q7"],
        ["which year"],
        ["1984"],
    )
    assert (relevant(collection, "train"), relevant(collection, "dev")) == ([["d2", "d1"]], [["d5"]])
    assert collection.skipped == {"train queries without positives": 1}
