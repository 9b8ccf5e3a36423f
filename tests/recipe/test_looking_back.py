"""Stages that take over from the stage before: what a recipe may ask for, and what is refused."""

import pytest
from pydantic import ValidationError

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe

ANN, MOMENTUM, RANDOM = {"kind": "ann"}, {"kind": "momentum"}, {"kind": "random"}
BM25 = {"kind": "run", "depth": 300}
EVERY = {"steps": 10, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}}
REFRESH = {"refresh": {"every_steps": 10}}
FIRST = {**EVERY, **REFRESH, "terms": {"query": {"negatives": [ANN]}}}


def recipe(**stages) -> Recipe:
    parts = {"data": {"kind": "beir", "folder": "some/where"}, "encoder": {"kind": "transformer", "model": "some-model"}}
    return Recipe.model_validate({"name": "episodes", **parts, "stages": {name: {**EVERY, **stage} for name, stage in stages.items()}})


def query(*negatives: dict, **more) -> dict:
    return {"terms": {"query": {"negatives": negatives, **more}}}


def test_a_stage_takes_over_by_a_source_of_its_own_or_one_in_a_mix(write):
    mixed = {"kind": "mix", "sources": [ANN, {"kind": "mix", "sources": [MOMENTUM]}]}
    made = recipe(a=FIRST, b=query(MOMENTUM), c={**query(mixed), "refresh": {"every_steps": 10, "first_with": "previous"}})
    assert [stage.takes_over for stage in made.stages.values()] == [False, True, True]
    assert [stage.mines_with_previous for stage in made.stages.values()] == [False, False, True]
    assert [made.stage_before(name) for name in "abc"] == [None, "a", "b"]
    assert load(write("again", dump(made))).recipe == made


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({"a": query(MOMENTUM)}, "stages.a.terms.query.negatives: momentum takes over the negatives of the stage before, but this is the first"),
        ({"a": query(RANDOM), "b": query(MOMENTUM)}, "has no term 'query' with `anchor: query` and a source that is mined"),
        ({"a": {**REFRESH, "terms": {"q": {"negatives": [ANN]}}}, "b": query(MOMENTUM)}, r"\(its terms: q\); name the terms alike"),
        ({"a": FIRST, "b": query(MOMENTUM, anchor="document")}, "has no term 'query' with `anchor: document`"),
        ({"a": {**FIRST, "refresh": {"every_steps": 5, "first_with": "previous"}}}, "stages.a.refresh.first_with: previous, but no stage"),
        ({"a": query({"kind": "mix", "sources": [BM25]})}, "a `run` source has depth 300, but bm25.hits is 200"),
        ({"a": {**FIRST, "refresh": {"every_steps": 5, "chunks": 2}}, "b": query(MOMENTUM)}, "the stage before ends with those of one of 2 parts"),
        ({"a": {**query({"kind": "mix", "sources": [ANN, BM25]}), "refresh": {"every_steps": 5, "chunks": 2}}}, "refresh.chunks: a mix holds"),
        ({"a": query({"kind": "mix", "sources": [ANN]})}, "a source of negatives is mined with the model; say how often"),
    ],
)
def test_what_has_nothing_to_take_over_is_refused(stages, message):
    with pytest.raises(ValidationError, match=message):
        recipe(**stages)
