import re

import pytest
import yaml

from pyserini_ance.recipe.load import SHIPPED, dump, load

README = (SHIPPED / "README.md").read_text(encoding="utf-8")
SHOWN = re.search(r"(?ms)^```yaml\n# mine.yaml\n(.*?)^```$", README)[1]
JOINT = "train_split=[nq, trivia]"


def test_a_name_is_written_as_a_name_and_several_as_a_list(base, write):
    dumped = yaml.safe_load(dump(load(base)))
    assert (dumped["train_split"], dumped["final_evaluation"]["split"]) == ("train", "test")
    evaluate = "stages.only.evaluate={every_steps: 5, split: [a, b]}"
    recipe = load(base, JOINT, "final_evaluation.split=[nq-test, trivia-test]", evaluate)
    dumped = yaml.safe_load(dump(recipe))
    assert dumped["train_split"] == ["nq", "trivia"]
    assert dumped["final_evaluation"]["split"] == ["nq-test", "trivia-test"]
    assert dumped["stages"]["only"]["evaluate"]["split"] == ["a", "b"]
    assert load(write("dumped", dump(recipe))) == recipe


def test_a_list_of_one_is_that_one(base):
    listed = load(base, "train_split=[nq]", "final_evaluation.split=[dev]")
    assert listed == load(base, "train_split=nq", "final_evaluation.split=dev")


@pytest.mark.parametrize("name", ["msmarco-passage/bm25", "msmarco-passage/ltre-bm25"])
def test_replaced_data_need_not_have_the_other_splits_of_a_set(write, name):
    """As recipes/README.md shows it."""
    recipe = load(write("mine", SHOWN.replace("msmarco-passage/bm25", name)))
    evaluation = recipe.final_evaluation
    assert (recipe.data.kind, evaluation.split, evaluation.reranked) == ("pyserini_index", ("dev",), {})
    assert list(map(str, evaluation.measures_of("dev"))) == ["RR@10", "R@100", "R@1000", "AP"]
    assert load(write("dumped", dump(recipe))) == recipe
