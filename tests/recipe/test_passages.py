"""Documents in several passages: every part of a method accepts them."""

import pytest

from pyserini_ance.recipe.models import Recipe

DUAL = {"anchor": "document"}
ANN, LOOKAHEAD = {"kind": "ann"}, {"kind": "lookahead"}
EVERY = {
    "steps": 10,
    "batch_queries": 4,
    "optimizer": {"learning_rate": 1e-3},
    "refresh": {"every_steps": 10},
}


def recipe(*negatives: dict, test: dict | None = None, more: dict | None = None) -> Recipe:
    encoder = {"kind": "transformer", "model": "some-model", "tokenization": {"document": {"passages": 4}}}
    stages = {"a": {**EVERY, "terms": {"query": {"negatives": negatives}, **(more or {})}}}
    return Recipe.model_validate(
        {
            "name": "maxp",
            "data": {"kind": "beir", "folder": "some/where"},
            "encoder": encoder,
            "stages": stages,
            "final_evaluation": test or {},
        }
    )


@pytest.mark.parametrize("source", [ANN, LOOKAHEAD, {"kind": "mix", "sources": [ANN, LOOKAHEAD]}])
def test_sources_and_regularizers_serve_documents_in_passages_from_both_sides(source):
    """A score is that of the best passage from either side."""
    more = {"dual": {**DUAL, "negatives": [source]}, "even": {"regularizer": "uniformity"}}
    made = recipe(source, {"kind": "bm25"}, more=more, test={"query_measures": ["RR@10"]})
    assert made.encoder.tokenization.document.passages == 4
    assert made.stages["a"].terms["dual"].anchor == "document"
