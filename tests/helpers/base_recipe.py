"""Small recipes that load: as a file, and from stages."""

from typing import Any

from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.stage import Stage

BASE = """
data: {kind: beir, folder: some/where}
encoder: {kind: transformer, model: some-model}
stages:
  only:
    steps: 10
    batch_queries: 4
    optimizer: {learning_rate: 1e-3}
    terms:
      query: {negatives: [{kind: random}, {kind: bm25, top_k: 50}], loss: {kind: nll, scale: 2}}
"""


def recipe_of_stages(*stages: Stage | dict, **sections: Any) -> Recipe:
    """A recipe with the stages `s0`, `s1`, ... whose data nobody reads."""
    settings = {
        "name": "r",
        "data": {"kind": "docstrings"},
        "encoder": {"kind": "transformer", "model": "m"},
        "bm25": None,
    }
    return Recipe.model_validate(
        {**settings, "stages": {f"s{i}": made for i, made in enumerate(stages)}, **sections}
    )
