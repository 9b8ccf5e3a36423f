import re

import pytest
import yaml
from recipe.refusal import refused

from pyserini_ance.recipe.find import SHIPPED
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.splits import TrainSplit

SHOWN = re.search(r"^```yaml\n# mine.yaml\n(.*?)^```$", (SHIPPED / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]
JOINT = "train_split={splits: [nq, trivia], mixing: even}"


def test_a_name_is_written_as_a_name_and_several_as_a_list(base, write):
    assert yaml.safe_load(dump(load(base).recipe))["train_split"] == "train" and yaml.safe_load(dump(load(base).recipe))["test"]["split"] == "test"
    evaluate = "stages.only.evaluate={every_steps: 5, split: [a, b]}"
    recipe = load(base, JOINT, "test.split=[nq-test, trivia-test]", evaluate).recipe
    dumped = yaml.safe_load(dump(recipe))
    assert dumped["train_split"] == {"splits": ["nq", "trivia"], "mixing": "even"}
    assert (dumped["test"]["split"], dumped["stages"]["only"]["evaluate"]["split"]) == (["nq-test", "trivia-test"], ["a", "b"])
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_a_list_of_one_is_that_one(base):
    assert load(base, "train_split={splits: [nq]}", "test.split=[dev]").recipe == load(base, "train_split=nq", "test.split=dev").recipe


def test_the_joint_split_has_the_names_of_its_parts():
    assert TrainSplit(splits="train").name == "train"
    joint = TrainSplit(splits=["nq", "trivia"])
    assert (joint.name, joint.splits, joint.mixing) == ("nq+trivia", ("nq", "trivia"), "concatenated")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train_split=[nq, trivia]", "train_split: expected the name of a split, or `{splits: [NAME, NAME], mixing: concatenated | even}`"),
        ("train_split=", "train_split: expected the name of a split, or "),
        ("train_split={splits: [nq, nq]}", "train_split.splits: split 'nq' is listed twice; list each once"),
        ("train_split={splits: []}", "train_split.splits: expected the name of a split, or a list of names"),
        ("train_split={split: [nq, trivia]}", "train_split.split: unknown key 'split' (did you mean 'splits'?)"),
        ("train_split={splits: [nq, trivia], mixing: evenly}", "train_split.mixing: Input should be 'concatenated' or 'even', got 'evenly'"),
        ("train_split={splits: ['n q', trivia]}", "split 'n q': to be joined with others, a split needs a name without blanks and colons"),
        ("train_split={splits: [nq, 'a:b']}", "split 'a:b': to be joined with others"),
        ("train_split={splits: nq, mixing: even}", "mixing: even, but 'nq' is the only split; list more, or leave mixing out"),
        ("train_split={splits: [a, b, c], mixing: even}", "stages.only.batch_queries is 4, but train_split.mixing: even draws as many queries of "),
        ("test.split=[a, b, a]", "test.split: split 'a' is listed twice; list each once"),
        ("test.split=5", "test.split: expected the name of a split, or a list of names, got 5"),
        ("stages.only.evaluate={every_steps: 5, split: [a, 5]}", "stages.only.evaluate.split: expected the name of a split, or a list"),
    ],
)
def test_refused(base, override, message):
    assert message in refused(base, override)


def test_any_batch_goes_with_queries_in_one_order(base):
    assert load(base, "train_split={splits: [a, b, c]}").recipe.stages["only"].batch_queries == 4
    assert load(base, "train_split={splits: [a, b, c], mixing: even}", "stages.only.batch_queries=6").recipe.train_split.mixing == "even"


@pytest.mark.parametrize("name", ["msmarco-passage/bm25", "msmarco-passage/ance", "msmarco-passage/ltre-bm25", "msmarco-passage/ance-tele"])
def test_data_in_place_of_a_sets_need_not_have_its_other_splits(write, name):
    """As recipes/README.md shows it."""
    path = write("mine", SHOWN.replace("msmarco-passage/bm25", name))
    recipe = load(path).recipe
    assert (recipe.data.kind, recipe.test.split, recipe.test.rerank) == ("pyserini_index", ("dev",), {})
    assert recipe.test.measures == {"dev": ("RR@10", "R@100", "R@1000", "AP")}
    assert load(write("dumped", dump(recipe))).recipe == recipe
    added = load(path, "data.splits.dl20={topics: dl20, qrels: dl20-passage}", "test.split=[dev, dl20]").recipe.test
    assert added.measures["dl20"][0] == "nDCG@10" and added.reranked["dl20"].hits == 100
    assert "splits of `data`: train, dev; add it there, or test on others: test.split=[dev]" in refused(path, "test.split=[dev, dl19]")
    assert "test.rerank names split 'dl91'; splits of `data`: train, dev" in refused(path, "test.rerank={dl91: {hits: 10}}")
    assert "test.measures names split 'dl91'" in refused(path, "test.measures={dl91: [RR]}")


def test_data_of_the_command_line_need_not_have_the_other_splits_of_a_set():
    data = "data={kind: ir_datasets, documents: msmarco-passage, splits: {train: msmarco-passage/train, dl19: msmarco-passage/trec-dl-2019/judged}}"
    test = load("msmarco-passage/bm25", data, "test.split=dl19").recipe.test
    assert list(test.measures) == list(test.rerank) == ["dl19"]
