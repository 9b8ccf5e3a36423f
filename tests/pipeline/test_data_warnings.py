"""Data that is allowed, but hardly meant: a warning with a number."""

import pytest

from pyserini_ance.data.given_collection import make_collection
from pyserini_ance.pipeline.data_warnings import data_warnings
from pyserini_ance.recipe.load import load

TRAIN = {"t1": "Who was it?", "7": "Where", "t2": "copied", "t3": "copied"}
RECIPE = ["final_evaluation.split=[test]", "stage_defaults.evaluate=null"]


@pytest.mark.parametrize(
    ("queries", "count"),
    [
        (TRAIN, 4),
        ({"a": "who  WAS it?", "b": "when"}, 1),  # by text
        ({"t1": "corrected", "b": "when"}, 1),  # by id
        ({"7": "another seventh question"}, 0),  # files that count their questions
        ({"a": "copied", "b": "COPIED"}, 2),
    ],
)
@pytest.mark.parametrize(
    "overrides", [RECIPE, ["final_evaluation.split=[train]", "stage_defaults.evaluate.split=test"]]
)
def test_test_and_dev_queries_that_are_training_queries_are_counted(queries, count, overrides):
    splits = {"train": TRAIN, "test": queries}
    judged = {name: {id: {"d1": 1} for id in of_split} for name, of_split in splits.items()}
    collection = make_collection({"d1": "one", "d2": "two"}, splits, judged)
    lines = data_warnings(load("demo/rand", *overrides).recipe, collection)
    assert len(lines) == bool(count)
    assert all(
        line.startswith(f"{count} of {len(queries)} queries of split 'test' are training") for line in lines
    )


@pytest.mark.parametrize(
    ("queries", "documents", "ignored", "count"),
    [
        ({"d1": "one", "q": "two"}, {"d1": "one", "d2": "two"}, False, 1),
        ({"d1": "ONE  text", "d2": "two"}, {"d1": {"title": "one", "text": "text"}, "d2": "two"}, False, 2),
        ({"d1": "one", "d2": "two"}, {"d1": {"title": "one", "text": "more"}, "d2": "else"}, False, 1),
        ({"1": "one", "2": "two"}, {"1": "other", "2": "another"}, False, 0),  # numbers
        ({"d1": "one", "q": "two"}, {"d1": "one", "d2": "two"}, True, 0),
    ],
)
def test_queries_that_are_documents_are_counted(queries, documents, ignored, count):
    judged, training = {id: dict.fromkeys(documents, 1) for id in queries}, {"t": "training"}
    splits, grades = (
        {"train": training, "test": queries},
        {"train": {"t": dict.fromkeys(documents, 1)}, "test": judged},
    )
    collection = make_collection(documents, splits, grades, ignore_identical_ids=ignored)
    lines = data_warnings(load("demo/rand", *RECIPE).recipe, collection)
    assert [line.partition(" queries are documents")[0] for line in lines] == [str(count)] * bool(count)


@pytest.mark.parametrize(
    ("settings", "file", "is_said"),
    [
        ("{}", "dev.tsv", True),
        ("{}", "dev.tsv.gz", True),
        ("{}", "else.tsv", False),
        ("{dev: null}", "dev.tsv", False),
    ],
)
def test_a_dev_split_of_the_data_that_hold_out_replaces_is_named(tmp_path, settings, file, is_said):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / file).touch()
    data = f"data={{kind: beir, folder: {tmp_path}, hold_out: 5, splits: {{train: t, dev: qrels/dev.tsv}}}}"
    recipe = load("demo/rand", data, f"data.splits={settings}").recipe
    collection = make_collection(
        {"d": "x"},
        {"train": {"q": "y"}, "dev": {"r": "z"}, "test": {"s": "u"}},
        {name: {id: {"d": 1}} for name, id in (("train", "q"), ("dev", "r"), ("test", "s"))},
    )
    lines = data_warnings(recipe, collection)
    assert len(lines) == is_said and all("data.hold_out makes split 'dev'" in line for line in lines)
