"""What a recipe should come to: figures of measures of splits."""

import pytest
from helpers.recipe_errors import refused

from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.load import dump, load, read_yaml


def test_expected_scores_survive_a_dump(base, write):
    recipe = load(base, "expect={dev: {RR@10: 0.33, R@1000: 1}, dl19: {'R(rel=2)@1000': 0}}").recipe
    assert recipe.expect == {"dev": {"RR@10": 0.33, "R@1000": 1.0}, "dl19": {"R(rel=2)@1000": 0.0}}
    assert load(write("dumped", dump(recipe))).recipe == recipe
    assert load(base).recipe.expect == {}


def test_a_recipe_that_extends_another_without_a_change_may_expect_more(base, write):
    write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    recipe = load(write("two", "extends: one\nexpect: {dev: {R@100: 0.9}, test: {AP: 0.2}}")).recipe
    assert recipe.expect == {"dev": {"RR@10": 0.3, "R@100": 0.9}, "test": {"AP": 0.2}}


def test_expect_null_drops_the_base_recipes_scores(base, write):
    write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    assert load(write("two", "extends: one\nexpect: null")).recipe.expect == {}


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("data={kind: docstrings}", 'data.kind "docstrings" instead of "beir"'),
        ("data.relevance_threshold=2", "data.relevance_threshold 2 instead of 1"),
        ("encoder.model=other", 'encoder.model "other" instead of "some-model"'),
        ("encoder.projection=64", "encoder.projection 64 instead of null"),
        ("stages.only.steps=11", "stages.only.steps 11 instead of 10"),
        ("stages.only.terms.query.loss.scale=3", "stages.only.terms.query.loss.scale 3.0 instead of 2.0"),
        (
            "stages.only.terms.query.negatives.1.top_k=40",
            "stages.only.terms.query.negatives.1.top_k 40 instead of 50",
        ),
        ("stages.only.init_from={run: a}", 'stages.only.init_from {"run": "a"} instead of "previous"'),
        ("bm25.b=0.8", "bm25.b 0.8 instead of 0.4"),
        ("final_evaluation.hits=10", "final_evaluation.hits 10 instead of 100"),
        ("final_evaluation.rerank.dev.hits=5", "final_evaluation.rerank.dev.hits 5 instead of 100"),
    ],
)
def test_a_variant_has_no_expectation_and_says_what_differs(write, base, override, difference):
    """By an override, or in a recipe that extends; its own figures hold for it again."""
    expect = "expect: {dev: {RR@10: 0.3}, dev-rerank: {AP: 0.1}}"
    one = write("one", f"extends: base\nfinal_evaluation: {{rerank: {{dev: {{}}}}}}\n{expect}")
    recipe = load(one, override).recipe
    assert recipe.expect == {}
    assert recipe.variant_of.startswith(f"{one.parent.name}/one: ") and difference in recipe.variant_of
    assert load(write("dumped", dump(recipe))).recipe == recipe
    as_file = dump(recipe.model_copy(update={"variant_of": ""}))
    child = write("two", f"extends: one\n{as_file.replace('expect: {}', '').replace('one', 'two', 1)}")
    assert (load(child).recipe.expect, load(child).recipe.variant_of) == ({}, "")
    own = load(one, override, "expect={dev: {RR@10: 0.5}}").recipe
    assert (own.expect, own.variant_of) == ({"dev": {"RR@10": 0.5}}, "")


@pytest.mark.parametrize(
    "override",
    [
        "seed=7",
        "threads=1",
        "device=cpu",
        "precision=fp32",
        "encoding={precision: bf16, tokens_per_batch: 64}",
        "cache=/elsewhere",
        "retention.save_total_limit=2",
        "refresher.device=cpu",
        "description=mine",
        "name=mine",
        "data.folder=/elsewhere",
        "data.official.documents=7",
        "bm25={threads: 1, index: /elsewhere, rm3: {}}",
        "stages.only.steps=10",
        "stages.only.chunk_queries=2",
        "stages.only.save_every_steps=2",
        "final_evaluation={split: dl19, measures: [AP], indexes: [Flat], precision: bf16}",
        "final_evaluation.rerank={test: {hits: 5}}",
    ],
)
def test_chance_machine_paths_and_numerics_keep_the_expectation(write, base, override):
    one = write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}}")
    recipe = load(one, override).recipe
    assert (recipe.expect, recipe.variant_of) == ({"dev": {"RR@10": 0.3}}, "")


def test_a_child_keeps_the_figures_of_its_own_of_a_changed_base(base, write):
    write("one", "extends: base\nexpect: {dev: {RR@10: 0.3}, test: {AP: 0.1}}")
    two = write("two", "extends: one\nstages: {only: {steps: 11}}\nexpect: {dev: {RR@10: 0.5}}")
    assert load(two).recipe.expect == {"dev": {"RR@10": 0.5}}
    assert load(two, "seed=3").recipe.expect == {"dev": {"RR@10": 0.5}}
    as_one = load(two, "stages.only.steps=10").recipe
    assert (as_one.expect, as_one.variant_of) == ({"test": {"AP": 0.1}}, "")


def test_figures_of_a_file_that_is_not_a_whole_recipe_are_refused(base, write):
    part = write("part", "expect: {dev: {RR@10: 0.3}}")
    message = f"{part}: expect: figures belong to a whole recipe, and this file is not one; move `expect` to"
    assert message in refused(write("two", "extends: [base, part]"))


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_recipe_expects_what_its_own_file_says(name):
    """Also on another machine; with other settings it expects nothing."""
    own = read_yaml((SHIPPED / f"{name}.yaml").read_text(), name).get("expect") or {}
    recipe = load(name, "threads=1", "seed=7").recipe
    assert (recipe.expect, recipe.variant_of) == (own, "")
    assert load(name).recipe.expect == own
    stage, *_ = recipe.stages
    variant = load(name, f"stages.{stage}.optimizer.max_grad_norm=0.123").recipe
    assert variant.expect == {} and bool(variant.variant_of) == bool(own)


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
