"""What a recipe should come to: figures of measures of splits."""

import pytest
from helpers.recipe_errors import refused

from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import dump, load, read_yaml


def test_expected_scores_survive_a_dump_and_are_not_inherited(base, write):
    one = write("one", "extends: base\nexpect: {dev: {RR@10: 0.33, R@1000: 1}, dl19: {'R(rel=2)@1000': 0}}")
    recipe = load(one).recipe
    assert recipe.expect == {"dev": {"RR@10": 0.33, "R@1000": 1.0}, "dl19": {"R(rel=2)@1000": 0.0}}
    assert load(write("dumped", dump(recipe))).recipe == recipe
    assert load(write("two", "extends: one\nexpect: {test: {AP: 0.2}}")).recipe.expect == {
        "test": {"AP": 0.2}
    }
    assert load(write("three", "extends: one")).recipe.expect == {}


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_recipe_expects_what_its_own_file_says(name):
    """Also on another machine; with other settings it expects nothing."""
    own = read_yaml((SHIPPED / f"{name}.yaml").read_text(), name).get("expect") or {}
    machine = ("threads=1", "seed=7", "encoding.precision=bf16", "data.folder=elsewhere")
    if load(name).recipe.data.kind != "beir":
        machine = machine[:-1]
    assert load(name).recipe.expect == load(name, *machine).recipe.expect == own
    stage, *_ = load(name).recipe.stages
    other = f"stages.{stage}.optimizer.max_grad_norm=0.123"
    assert load(name, other).recipe.expect == {}
    given = load(name, other, "expect={dev: {RR@10: 0.5}}").recipe.expect
    assert given["dev"]["RR@10"] == 0.5


@pytest.mark.parametrize("name", shipped())
def test_expected_figures_are_not_those_of_a_perfect_ranking(name):
    """A set on which the untrained encoder is perfect already cannot show that training works."""
    assert all(
        any(value < 1 for value in of_split.values()) for of_split in load(name).recipe.expect.values()
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "{RR@10: 0.3}",
            "expect: expected a value for each measure of a split, for example {dev: {RR@10: 0.33}}",
        ),
        (
            "0.3",
            "expect: expected a value for each measure of a split, for example {dev: {RR@10: 0.33}}, got 0.3",
        ),
        ("{dev: {RRR@10: 0.3}}", "expect.dev.RRR@10: unknown measure 'RRR@10' (did you mean 'RR@10'?)"),
        ("{dev: {MRR@10: 0.3}}", "expect.dev.MRR@10: tables call MRR@10 RR@10; write RR@10"),
        ("{dev: {RR@10: 33.0}}", "expect.dev.RR@10: Input should be less than or equal to 1, got 33.0"),
        ("{dev: {RR@10: -0.1}}", "expect.dev.RR@10: Input should be greater than or equal to 0, got -0.1"),
        ("{19: {RR@10: 0.3}}", "expect.19: Input should be a valid string, got 19"),
    ],
)
def test_anything_else_is_refused_at_its_key(base, value, message):
    assert f"  {message}" in refused(base, f"expect={value}")
