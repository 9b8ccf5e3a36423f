"""Stages that take over from the stage before: what a recipe may ask for, and what is refused."""

import pytest
from pydantic import ValidationError

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe

ANN, MOMENTUM, RANDOM = {"kind": "ann"}, {"kind": "momentum"}, {"kind": "random"}
BM25 = {"kind": "bm25", "top_k": 300}
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


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            {"a": query(MOMENTUM)},
            "stages.a.terms.query.negatives: momentum draws from the negatives of the previous stage, but "
            "this is the first",
        ),
        (
            {"a": query(RANDOM), "b": query(MOMENTUM)},
            "has no term 'query' with `anchor: query` and a source that is mined",
        ),
        (
            {"a": {**REFRESH, "terms": {"q": {"negatives": [ANN]}}}, "b": query(MOMENTUM)},
            r"\(its terms: q\); give both terms one name",
        ),
        (
            {"a": FIRST, "b": query(MOMENTUM, anchor="document")},
            "has no term 'query' with `anchor: document`",
        ),
        (
            {"a": {**FIRST, "refresh": {"every_steps": 5, "initial_model": "previous_stage"}}},
            "stages.a.refresh.initial_model: previous_stage, but no stage",
        ),
        (
            {"a": query({"kind": "mix", "sources": [BM25]})},
            "a `bm25` source has top_k 300, but bm25.hits is 200",
        ),
        (
            {"a": {**FIRST, "refresh": {"every_steps": 5, "query_chunks": 2}}, "b": query(MOMENTUM)},
            "the previous stage ends with the tables of one of 2 chunks",
        ),
        (
            {
                "a": {**query({**ANN, "min_candidates": 2}), "refresh": {"every_steps": 5}},
                "b": query(MOMENTUM),
            },
            "the previous stage leaves queries out of its tables; remove min_candidates there",
        ),
        (
            {
                "a": {
                    **query({"kind": "mix", "sources": [ANN, BM25]}),
                    "refresh": {"every_steps": 5, "query_chunks": 2},
                }
            },
            "refresh.query_chunks: a mix holds",
        ),
        (
            {"a": query({"kind": "mix", "sources": [ANN]})},
            "a source of negatives is mined with the model; set how often",
        ),
    ],
)
def test_momentum_without_previous_tables_is_rejected(stages, message):
    with pytest.raises(ValidationError, match=message):
        recipe(**stages)
