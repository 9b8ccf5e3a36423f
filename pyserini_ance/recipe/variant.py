"""Variants of a recipe: the settings that influence a result, and the figures of `expect` that hold for them.

Figures belong to the recipe as the file that lists them has it. Another configuration has none of them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.evaluation_settings import RERANK_SUFFIX
from pyserini_ance.recipe.models import Recipe

SHOWN = 3  # differing keys in a sentence
ABSENT = object()
DESCRIPTIVE_KEYS = ("description", "expect", "variant_of")  # they describe a run and do not change it
# Chance, machine, files and numerics: recipes that differ in these alone come to the same scores.
NO_INFLUENCE: dict[str, Any] = {
    **dict.fromkeys(("name", "seed", *DESCRIPTIVE_KEYS), True),
    **dict.fromkeys(("device", "threads", "precision", "encoding", "refresher", "retention"), True),
    **dict.fromkeys(("cache", "documents_per_part", "log_with"), True),
    "bm25": {"threads", "index", "rm3"},
    "stages": {"__all__": {"chunk_queries", "save_every_steps"}},
    "data": True,  # compared without its paths
    "final_evaluation": True,  # splits and measures have columns of their own
}


def influences(recipe: Recipe) -> dict[str, Any]:
    """The settings that influence the scores of the recipe's result, as JSON values.

    Paths of data do not count: the same files may be anywhere.
    """
    test = recipe.final_evaluation
    return {
        **recipe.model_dump(mode="json", exclude=NO_INFLUENCE),
        "data": _without_paths(recipe.data.model_dump(exclude={"official"})),
        "final_evaluation": {
            "hits": test.hits,
            "rerank": {
                split: {"hits": rerank.hits}
                for split, rerank in test.rerank.items()
                if f"{split}{RERANK_SUFFIX}" in recipe.expect
            },
        },
    }


def describe_variant(recipe: Recipe, base: Recipe) -> str:
    """What `recipe` has instead of `base`, in words: `demo/ance: stages.ance.steps 60 instead of 120`.

    Empty if nothing that influences the result differs.
    """
    # Only the base lists figures, and with them the rerankings that count.
    settings = influences(recipe.model_copy(update={"expect": base.expect}))
    differing = [f"{key} {new} instead of {old}" for key, old, new in differences(influences(base), settings)]
    more = f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return f"{base.name}: {'; '.join(differing[:SHOWN])}{more}" if differing else ""


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (dotted key, old value, new value) where settings from JSON differ; positions count from 0."""
    if isinstance(old, list) and isinstance(new, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{key}.{name}" if key else str(name)
            yield from differences(old.get(name, ABSENT), new.get(name, ABSENT), inner)
        return
    if old != new:
        yield key, _short(old), _short(new)


def _short(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _without_paths(value: Any) -> Any:
    """The settings without paths, and without mappings and lists that hold nothing else."""
    if isinstance(value, dict):
        return {key: _without_paths(inner) for key, inner in value.items() if not _is_path(inner)}
    return [_without_paths(inner) for inner in value] if isinstance(value, list | tuple) else value


def _is_path(value: Any) -> bool:
    """Whether a setting is a path, or holds nothing but paths."""
    if isinstance(value, dict | list | tuple) and value:
        return all(map(_is_path, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Path)
