import json

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


def test_documents_are_the_listed_passages(tmp_path):
    for name, records in RECORDS.items():
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in records))
    collection = Tevatron(splits={name: tmp_path / f"{name}.jsonl" for name in ("train", "dev")}).read()
    train = collection.split("train")
    assert collection.documents.ids == ["d2", "d1", "d3", "d4", "d5"]
    assert collection.documents[0] == {"title": "Td2", "text": "text of d2"}
    assert (train.queries.ids, train.queries.columns["text"]) == (["q7"], ["which year"])
    assert read_answers(train.queries, 0) == ["1984"]
    assert [collection.judgments(split) for split in ("train", "dev")] == [
        {"q7": {"d2": 1, "d1": 1}},
        {"9": {"d5": 1}},
    ]
    assert collection.skipped == {"train queries without positives": 1}
