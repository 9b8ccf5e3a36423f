"""Documents in several passages: what needs one vector per document is refused."""

import pytest
from pydantic import ValidationError

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


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        ({"more": {"even": {"regularizer": "uniformity"}}}, "a regularizer"),
        (
            {"more": {"too": {"negatives": [LOOKAHEAD]}, "dual": {**DUAL, "negatives": [LOOKAHEAD]}}},
            "a `lookahead` source",
        ),
    ],
)
def test_components_that_need_one_vector_per_document_are_rejected(settings, who):
    with pytest.raises(
        ValidationError, match=f"{who} needs one vector per document, .*passages is 4; use passages: 1"
    ):
        recipe(ANN, **settings)


def test_documents_in_passages_may_be_anchors_and_rank_queries():
    """A score is that of the best passage from either side; and a lookahead of theirs is among queries."""
    made = recipe(
        ANN, more={"dual": {**DUAL, "negatives": [ANN, LOOKAHEAD]}}, test={"query_measures": ["RR@10"]}
    )
    assert made.stages["a"].terms["dual"].anchor == "document"


@pytest.mark.parametrize("source", [LOOKAHEAD, {"kind": "mix", "sources": [ANN, LOOKAHEAD]}])
def test_no_source_may_search_with_the_vector_of_a_document(source):
    with pytest.raises(ValidationError, match="a `lookahead` source needs one vector per document"):
        recipe(source)


def test_other_sources_serve_documents_in_passages():
    assert (
        recipe(ANN, {"kind": "mix", "sources": [ANN, {"kind": "bm25"}]}).stages["a"].sources[0].top_k == 200
    )
