"""Stages that take over from the stage before: what a recipe may ask for, and what is refused."""

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe

ANN, MOMENTUM = {"kind": "ann"}, {"kind": "momentum"}
EVERY = {"steps": 10, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}}
REFRESH = {"refresh": {"every_steps": 10}}
FIRST = {**EVERY, **REFRESH, "terms": {"query": {"negatives": [ANN]}}}


def recipe(**stages) -> Recipe:
    parts = {
        "data": {"kind": "beir", "folder": "some/where"},
        "encoder": {"kind": "transformer", "model": "some-model"},
    }
    return Recipe.model_validate(
        {"name": "episodes", **parts, "stages": {name: {**EVERY, **stage} for name, stage in stages.items()}}
    )


def query(*negatives: dict, **more) -> dict:
    return {"terms": {"query": {"negatives": negatives, **more}}}


def test_a_stage_uses_previous_tables_directly_or_in_a_mix(write):
    mixed = {"kind": "mix", "sources": [ANN, {"kind": "mix", "sources": [MOMENTUM]}]}
    made = recipe(
        a=FIRST,
        b=query(MOMENTUM),
        c={**query(mixed), "refresh": {"every_steps": 10, "initial_model": "previous_stage"}},
    )
    assert [stage.uses_previous_tables for stage in made.stages.values()] == [False, True, True]
    assert [stage.mines_with_previous for stage in made.stages.values()] == [False, False, True]
    assert [made.stage_before(name) for name in "abc"] == [None, "a", "b"]
    assert load(write("again", dump(made))).recipe == made
