"""Stages of small recipes, and changes of a recipe."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

LOSS = {"kind": "nll", "scale": 0.1}
RANDOM, ANN = {"kind": "random"}, {"kind": "ann", "top_k": 8}
OWN = {"own": {"negatives": [{"kind": "random", "num_negatives": 2}], "loss": LOSS}}
BATCH = {"batch": {"in_batch_negatives": True, "loss": LOSS}}


def make_stage(*negatives: dict, steps: int = 4, **more: Any) -> dict:
    """Steps of four queries with one term, whose loss is LOSS."""
    terms = {"query": {"negatives": list(negatives), "loss": LOSS}}
    settings = {"steps": steps, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": terms}
    return {**settings, **more}


def recipe_file(recipe, folder: Path, name: str = "recipe") -> Path:
    from pyserini_ance.recipe.load import dump

    path = folder / f"{name}.yaml"
    path.write_text(dump(recipe))
    return path


def changed(recipe, *overrides: str):
    """A recipe with overrides, as the command line has them: `dotted.key=value`."""
    from pyserini_ance.recipe.load import load

    with TemporaryDirectory() as folder:
        return load(recipe_file(recipe, Path(folder)), *overrides)
