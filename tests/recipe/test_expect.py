"""What a recipe should come to: figures of measures of splits."""

import pytest
from helpers.recipe_errors import refused

from pyserini_ance.recipe.load import dump, load


def test_expected_scores_survive_a_dump(base, write):
    recipe = load(base, "expect={dev: {RR@10: 0.33, R@1000: 1}, dl19: {'R(rel=2)@1000': 0}}").recipe
    assert recipe.expect == {"dev": {"RR@10": 0.33, "R@1000": 1.0}, "dl19": {"R(rel=2)@1000": 0.0}}
    assert load(write("dumped", dump(recipe))).recipe == recipe
    assert load(base).recipe.expect == {}


def test_a_recipe_that_extends_another_may_expect_more(base, write):
    write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    recipe = load(write("two", "extends: one\nexpect: {dev: {R@100: 0.9}, test: {AP: 0.2}}")).recipe
    assert recipe.expect == {"dev": {"RR@10": 0.3, "R@100": 0.9}, "test": {"AP": 0.2}}


def test_expect_null_drops_the_base_recipes_scores(base, write):
    write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    assert load(write("two", "extends: one\nexpect: null")).recipe.expect == {}


def test_other_data_drop_the_expected_scores(base, write):
    """Another kind of data has none of them, unless it says so itself; the same kind elsewhere has."""
    write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    other = "data: {kind: docstrings}"
    assert load(write("two", f"extends: one\n{other}")).recipe.expect == {}
    assert load(write("three", f"extends: one\n{other}\nexpect: {{dev: {{RR@10: 0.5}}}}")).recipe.expect == {
        "dev": {"RR@10": 0.5}
    }
    assert load(write("four", "extends: one"), "data={kind: docstrings}").recipe.expect == {}
    assert load(write("five", "extends: one"), "seed=7").recipe.expect == {"dev": {"RR@10": 0.3}}


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
        ("{dev: {RRR@10: 0.3}}", "expect.dev.RRR@10: unknown measure 'RRR@10' (did you mean 'RR'?)"),
        ("{dev: {MRR@10: 0.3}}", "expect.dev.MRR@10: tables call MRR@10 RR@10; write RR@10"),
        ("{dev: {RR@10: 33.0}}", "expect.dev.RR@10: Input should be less than or equal to 1, got 33.0"),
        ("{dev: {RR@10: -0.1}}", "expect.dev.RR@10: Input should be greater than or equal to 0, got -0.1"),
        ("{19: {RR@10: 0.3}}", "expect.19: Input should be a valid string, got 19"),
    ],
)
def test_anything_else_is_refused_at_its_key(base, value, message):
    assert f"  {message}" in refused(base, f"expect={value}")
