import json
from dataclasses import replace

import datasets
import numpy as np
import pandas
import pytest

from pyserini_ance.data.answer_matching import read_answers
from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.data.collection_files import write_tevatron
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.formats.training_files import Tevatron
from pyserini_ance.data.given_collection import make_collection, qrels_of, run_of

RECORDS = [{"_id": "007", "title": "One", "text": "first"}, {"_id": "d3", "title": "", "text": "third  "}]
RECORDS.insert(1, {"_id": "7", "title": None, "text": "second", "url": 3})
DOCUMENTS = {record["_id"]: {"title": record["title"], "text": record["text"]} for record in RECORDS}
QUERIES = {"train": {"q1": "which  one", "q2": "which two"}, "test": {"q3": "which three"}}
JUDGMENTS = {"train": {"q2": {"7": 1, "007": 0}, "q1": {"007": 2}}, "test": {"q3": {"d3": 1}}}
ONE = {"train": {"q1": {"d1": 1}}}
FLOAT = pandas.DataFrame({"_id": [0.0, 1.0], "text": ["a", "b"]})
DOCUMENT, QUERY = {"d1": "a"}, {"train": {"q1": "q"}}
REPEATED = [{"id": id, "text": "a"} for id in ("d1", "d2", "d1")]


@pytest.mark.parametrize("container", [list, iter, pandas.DataFrame, datasets.Dataset.from_list])
def test_records_make_the_collection_of_a_mapping(container):
    records = {split: [{"_id": id, "text": of[id]} for id in of] for split, of in QUERIES.items()}
    queries = {split: container(rows) for split, rows in records.items()}
    made = make_collection(container(RECORDS), queries, JUDGMENTS)
    expected = make_collection(DOCUMENTS, QUERIES, JUDGMENTS)
    assert made.digest == expected.digest and list(made.splits) == list(expected.splits)


def test_beirs_files_make_the_same_collection_again(tmp_path):
    made, folder = make_collection(DOCUMENTS, QUERIES, JUDGMENTS), tmp_path / "new" / "set"
    made.to_beir(folder)
    again = Beir(folder=folder, splits={split: f"qrels/{split}.tsv" for split in QUERIES}).read()
    assert again.digest == made.digest
    with pytest.raises(FileExistsError, match="is not empty"):
        made.to_beir(folder)
    queries = made.split("test").queries
    unjudged = Split("asked", queries, Qrels.of([], [], [], len(queries)))
    with pytest.raises(ValueError, match="split 'asked' has no judgments"):
        replace(made, splits={"asked": unjudged}).to_beir(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_where_one_id_is_two_queries_each_has_its_splits_name(tmp_path):
    queries = {"train": {"q1": "one", "q2": "two"}, "test": {"q1": {"text": "other", "answers": ["x"]}}}
    judgments = {"train": {"q1": {"7": 1}, "q2": {"7": 2}}, "test": {"q1": {"007": 1}}}
    make_collection(DOCUMENTS, queries, judgments).to_beir(tmp_path / "set")
    found = Beir(folder=tmp_path / "set", splits={name: f"qrels/{name}.tsv" for name in queries}).read()
    assert found.split("train").queries.ids == ["train:q1", "train:q2"]
    test = found.split("test").queries
    assert (test.ids, test[0]) == (["test:q1"], {"text": "other", "answers": '["x"]'})


def test_tevatron_comes_back(tmp_path):
    texts = {"d1": 'a "b"\tc\nd', "é": {"title": "Ünder", "text": "line\u2028line"}}
    queries = {"train": {"q1": {"text": "which one", "answers": ["x"]}, "q2": "who"}}
    made = make_collection(texts, queries, {"train": {"q1": {"é": 1, "d1": 1}, "q2": {"d1": 1}}})
    write_tevatron(made, tmp_path)
    files = {"train": tmp_path / "train.jsonl"}
    assert Tevatron(corpus=tmp_path / "corpus.jsonl", splits=files).read().digest == made.digest
    first = json.loads((tmp_path / "train.jsonl").read_text().split("\n")[0])
    assert first["negative_passages"] == []
    assert [passage["docid"] for passage in first["positive_passages"]] == ["é", "d1"]


def test_ids_may_be_whole_numbers(caplog):
    frame = pandas.DataFrame({"id": [7, 8], "text": ["first", "second"]})
    assert make_collection(frame.set_index("id"), {}, {}).documents.ids == ["7", "8"]
    queries = {"train": {np.int64(1): "one", 2: {"text": "two", "answers": ["2"]}, 3: "not judged"}}
    made = make_collection(frame, queries, {"train": {1: {np.int32(8): np.int64(2)}, 2: {7: 1}}})
    train = made.split("train")
    assert made.documents.ids == ["7", "8"] and train.queries.ids == ["1", "2"]
    assert made.judgments("train") == {"1": {"8": 2}, "2": {"7": 1}}
    assert read_answers(train.queries, 1) == ["2"]
    assert made.skipped == {"train queries without judgments": 1} and "train queries" in caplog.text


def test_answers_may_be_arrays_as_in_a_frame_of_parquet():
    frame = pandas.DataFrame({"id": ["q1"], "text": ["one"], "answers": [np.array(["1", "one"], object)]})
    made = make_collection({"d1": "a"}, {"train": frame}, {"train": {"q1": {"d1": 1}}})
    assert read_answers(made.split("train").queries, 0) == ["1", "one"]


@pytest.mark.parametrize(
    ("documents", "queries", "judgments", "message"),
    [
        (FLOAT, QUERY, ONE, r"^documents\[0\]: id 0\.0; .*; write the id as a string or a whole number$"),
        (REPEATED, QUERY, ONE, r"^documents\[2\]: document id 'd1' was already given in documents\[0\]; exp"),
        ([{"docno": "d1", "body": "a"}], QUERY, ONE, r"^documents\[0\]: id None; .* 'docno, body'"),
        ("corpus.jsonl", QUERY, ONE, r"^documents is 'corpus.jsonl'; expected a mapping from ids to texts"),
        (DOCUMENT, [{"id": "q1", "text": "q"}], ONE, r"^queries is \[.*; expected a mapping from the names"),
        (DOCUMENT, QUERY, {"train": {"q1": {"d1": 1.5}}}, r"^judgments\['train'\]\['q1'\]\['d1'\]: .* 1.5"),
        (DOCUMENT, QUERY, {"train": {"q1": {"d1": 2**31}}}, r"'q1'\]\['d1'\]: .* less than 1000000000, got"),
        (pandas.Series(DOCUMENT), QUERY, ONE, r"^documents\[0\]: 'a'; .*; pass texts alone as a mapping"),
        (DOCUMENT, QUERY, {"train": {"q1": ["d1"]}}, r"^judgments\['train'\]\['q1'\]: .*, got \['d1'\]"),
        (DOCUMENT, {"a/b": {}}, {"a/b": {}}, "split .a/b.: files are named after splits"),
    ],
)
def test_what_is_not_valid_is_named(documents, queries, judgments, message):
    with pytest.raises(ValueError, match=message):
        make_collection(documents, queries, judgments)


def test_runs_and_qrels_have_numbers_also_those_of_numpy():
    qrels = qrels_of({7: {"a": np.int64(2), "b": True}})
    assert qrels == {"7": {"a": 2, "b": 1}} and {type(grade) for grade in qrels["7"].values()} == {int}
    assert run_of({"q": {"a": np.float32(0.5), np.int64(8): 1}}) == {"q": {"a": 0.5, "8": 1.0}}
    with pytest.raises(ValueError, match=r"run\['q'\]\['b'\]: .*finite number, got nan"):
        run_of({"q": {"a": 1.0, "b": float("nan")}})
    with pytest.raises(ValueError, match=r"qrels\['q'\]\['a'\]: .*integer.*, got 1.5; expected a mapping"):
        qrels_of({"q": {"a": 1.5}})
