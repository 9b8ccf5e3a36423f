"""Expected figures next to measured ones, for the runs that they belong to."""

from collections.abc import Mapping
from typing import Any

from pyserini_ance.evaluation.tables import table
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.variant import describe_variant
from pyserini_ance.runs.provenance import source_run, source_runs

NO_EXPECTATION = "no expectation for this variant of"


def expectation(recipe: Recipe, row: Mapping[str, Any]) -> str:
    """A table of the scores that the recipe expects next to those of the last stage's `row`, or a sentence
    that says why a variant has none; "" if nothing is expected."""
    rows, columns, sentence = expected_rows(recipe, row)
    return table(rows, columns) if rows else sentence


def expected_rows(recipe: Recipe, row: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str], str]:
    """Rows and columns of the table of `expectation`, and its sentence if there are none."""
    if recipe.variant_of:
        return [], [], f"{NO_EXPECTATION} {recipe.variant_of}"
    columns = recipe.final_evaluation.columns
    expected = {
        columns[key]: value
        for split, scores in recipe.expect.items()
        for measure, value in scores.items()
        if (key := (split, measure)) in columns and columns[key] in row
    }
    if not expected:
        return [], [], ""
    if variant := variant_start(recipe):
        return [], [], f"{NO_EXPECTATION} {variant}"
    rows = [
        {
            row["row"]: column,
            "expected": value,
            "measured": row[column],
            "difference": f"{row[column] - value:+.4f}",
        }
        for column, value in expected.items()
    ]
    return rows, [row["row"], "expected", "measured", "difference"], ""


def variant_of(run: Recipe, recipe: Recipe) -> str:
    """What the recipe of a run, or of a run that it starts from, has instead of `recipe`; "" if nothing that
    influences the result.

    A grid starts its runs from one another (`run`), where a recipe names another recipe.
    """
    stages = dict(run.stages)
    for name, init_from in source_runs(run).items():
        if (source := source_run(init_from)).recipe.exists():
            recipe_name = source.read_recipe().name
            named = init_from.model_copy(update={"run": None, "recipe": recipe_name})
            stages[name] = stages[name].model_copy(update={"init_from": named})
    return describe_variant(run.model_copy(update={"stages": stages}), recipe) or variant_start(run)


def variant_start(recipe: Recipe) -> str:
    """What the run that a stage starts from has instead of that run's recipe; "" if nothing.

    Runs that do not exist, or that no recipe of that name can be found of, are taken for what they should be.
    """
    for init_from in source_runs(recipe).values():
        try:
            started = source_run(init_from).read_recipe()
            base = load(init_from.recipe or started.name).recipe
        except FileNotFoundError:
            continue
        if variant := describe_variant(started, base):
            return variant
    return ""
