import re

import pytest
import yaml
from helpers.recipe_errors import refused

from pyserini_ance.recipe.find import SHIPPED
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.splits import TrainSplit

SHOWN = re.search(
    r"^```yaml\n# mine.yaml\n(.*?)^```$",
    (SHIPPED / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)[1]
JOINT = "train_split={splits: [nq, trivia], sampling: equal}"


def test_a_name_is_written_as_a_name_and_several_as_a_list(base, write):
    assert (
        yaml.safe_load(dump(load(base).recipe))["train_split"] == "train"
        and yaml.safe_load(dump(load(base).recipe))["final_evaluation"]["split"] == "test"
    )
    evaluate = "stages.only.evaluate={every_steps: 5, split: [a, b]}"
    recipe = load(base, JOINT, "final_evaluation.split=[nq-test, trivia-test]", evaluate).recipe
    dumped = yaml.safe_load(dump(recipe))
    assert dumped["train_split"] == {"splits": ["nq", "trivia"], "sampling": "equal", "positives": "all"}
    assert (dumped["final_evaluation"]["split"], dumped["stages"]["only"]["evaluate"]["split"]) == (
        ["nq-test", "trivia-test"],
        ["a", "b"],
    )
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_a_list_of_one_is_that_one_and_is_written_whole_with_other_positives(base, write):
    listed = load(base, "train_split={splits: [nq]}", "final_evaluation.split=[dev]").recipe
    assert listed == load(base, "train_split=nq", "final_evaluation.split=dev").recipe
    recipe = load(base, "train_split={splits: train, positives: last}").recipe
    written = {"splits": "train", "sampling": "proportional", "positives": "last"}
    assert yaml.safe_load(dump(recipe))["train_split"] == written
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_the_merged_split_is_named_after_its_splits():
    assert TrainSplit(splits="train").name == "train"
    joint = TrainSplit(splits=["nq", "trivia"])
    assert (joint.name, joint.splits, joint.sampling) == ("nq+trivia", ("nq", "trivia"), "proportional")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "train_split=[nq, trivia]",
            "train_split: expected the name of a split, or "
            "`{splits: [NAME, NAME], sampling: proportional | equal}`",
        ),
        ("train_split=", "train_split: expected the name of a split, or "),
        ("train_split={splits: [nq, nq]}", "train_split.splits: split 'nq' is listed twice; list each once"),
        ("train_split={splits: []}", "train_split.splits: expected the name of a split, or a list of names"),
        (
            "train_split={split: [nq, trivia]}",
            "train_split.split: unknown key 'split' (did you mean 'splits'?)",
        ),
        (
            "train_split={splits: [nq, trivia], sampling: evenly}",
            "train_split.sampling: Input should be 'proportional' or 'equal', got 'evenly'",
        ),
        (
            "train_split={splits: ['n q', trivia]}",
            "split 'n q': to be merged with others, a split needs a name without blanks and colons",
        ),
        ("train_split={splits: [nq, 'a:b']}", "split 'a:b': to be merged with others"),
        (
            "train_split={splits: nq, sampling: equal}",
            "sampling: equal, but 'nq' is the only split; list more, or remove sampling",
        ),
        (
            "train_split={splits: [a, b, c], sampling: equal}",
            "stages.only.batch_queries is 4, but train_split.sampling: equal draws equally many queries of ",
        ),
        (
            "final_evaluation.split=[a, b, a]",
            "final_evaluation.split: split 'a' is listed twice; list each once",
        ),
        (
            "final_evaluation.split=5",
            "final_evaluation.split: expected the name of a split, or a list of names, got 5",
        ),
        ("final_evaluation.split=dl/19", "split 'dl/19': files are named after splits"),
        ("train_split=dl/19", "so that a name has no slash; rename it, for example to 'dl-19'"),
        ("data.splits={train: train.tsv, dl/19: dl19.tsv}", "split 'dl/19': files are named after splits"),
        (
            "stages.only.evaluate={every_steps: 5, split: [a, 5]}",
            "stages.only.evaluate.split: expected the name of a split, or a list",
        ),
    ],
)
def test_refused(base, override, message):
    assert message in refused(base, override)


def test_a_batch_is_shared_equally_or_has_queries_in_one_order(base):
    load(base, "train_split={splits: [a, b, c]}")
    load(base, "train_split={splits: [a, b, c], sampling: equal}", "stages.only.batch_queries=6")


@pytest.mark.parametrize(
    "name",
    [
        "msmarco-passage/bm25",
        "msmarco-passage/ance",
        "msmarco-passage/ltre-bm25",
        "msmarco-passage/ance-tele",
    ],
)
def test_replaced_data_need_not_have_the_other_splits_of_a_set(write, name):
    """As recipes/README.md shows it."""
    path = write("mine", SHOWN.replace("msmarco-passage/bm25", name))
    recipe = load(path).recipe
    assert (recipe.data.kind, recipe.final_evaluation.split, recipe.final_evaluation.rerank) == (
        "pyserini_index",
        ("dev",),
        {},
    )
    assert recipe.final_evaluation.measures == {"dev": ("RR@10", "R@100", "R@1000", "AP")}
    assert load(write("dumped", dump(recipe))).recipe == recipe
    added = load(
        path, "data.splits.dl20={topics: dl20, qrels: dl20-passage}", "final_evaluation.split=[dev, dl20]"
    ).recipe.final_evaluation
    assert added.measures["dl20"][0] == "nDCG@10" and added.reranked["dl20"].hits == 100
    assert (
        "splits of `data`: train, dev; add it there, or evaluate others: final_evaluation.split=[dev]"
        in refused(path, "final_evaluation.split=[dev, dl19]")
    )
    assert "final_evaluation.rerank names split 'dl91'; splits of `data`: train, dev" in refused(
        path, "final_evaluation.rerank={dl91: {hits: 10}}"
    )
    assert "final_evaluation.measures names split 'dl91'" in refused(
        path, "final_evaluation.measures={dl91: [RR]}"
    )


def test_data_of_the_command_line_need_not_have_the_other_splits_of_a_set():
    splits = "{train: msmarco-passage/train, dl19: msmarco-passage/trec-dl-2019/judged}"
    data = f"data={{kind: ir_datasets, documents: msmarco-passage, splits: {splits}}}"
    test = load("msmarco-passage/bm25", data, "final_evaluation.split=dl19").recipe.final_evaluation
    assert list(test.measures) == list(test.rerank) == ["dl19"]
