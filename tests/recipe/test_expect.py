import pytest

from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.yaml_text import read_yaml


def test_expected_scores_survive_a_dump(base, write):
    recipe = load(base, "expect={dev: {RR@10: 0.33, R@1000: 1}, dl19: {'R(rel=2)@1000': 0}}").recipe
    assert recipe.expect == {"dev": {"RR@10": 0.33, "R@1000": 1.0}, "dl19": {"R(rel=2)@1000": 0.0}}
    assert load(write("dumped", dump(recipe))).recipe == recipe
    assert load(base).recipe.expect == {}


def test_figures_are_not_inherited(base, write):
    write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    two = write("two", "extends: one\nexpect: {test: {AP: 0.2}}")
    assert load(two).recipe.expect == {"test": {"AP": 0.2}}
    assert load(write("three", "extends: one")).recipe.expect == {}


CHANCE_MACHINE_PATHS_AND_NUMERICS = ["seed=7", "threads=1", "device=cpu", "encoding={precision: bf16}"]
CHANCE_MACHINE_PATHS_AND_NUMERICS += ["cache=/elsewhere", "name=mine", "data.folder=/elsewhere"]
CHANCE_MACHINE_PATHS_AND_NUMERICS += ["final_evaluation.split=dl19", "save_total_limit=2"]
AS_IN_THE_FILE = "stages.only.steps=10"


def test_overrides_of_the_method_drop_the_figures_and_others_keep_them(base, write):
    one = write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    for override in ("stages.only.steps=11", "data.relevance_threshold=2", "bm25.b=0.8"):
        assert load(one, "seed=3", override).recipe.expect == {}
    for override in (*CHANCE_MACHINE_PATHS_AND_NUMERICS, AS_IN_THE_FILE):
        assert load(one, override).recipe.expect == {"dev": {"RR@10": 0.3}}, override


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_recipe_expects_what_its_own_file_says(name):
    """Also on another machine; with other settings it expects nothing. A set on which a ranking is perfect
    cannot show that training works."""
    own = read_yaml((SHIPPED / f"{name}.yaml").read_text(), name).get("expect") or {}
    recipe = load(name, "threads=1", "seed=7").recipe
    assert recipe.expect == load(name).recipe.expect == own
    stage, *_ = recipe.stages
    variant = load(name, f"stages.{stage}.optimizer.max_grad_norm=0.123").recipe
    assert variant.expect == {}
    assert all(any(value < 1 for value in of_split.values()) for of_split in own.values())
