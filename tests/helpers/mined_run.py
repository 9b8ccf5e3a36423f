"""A finished run over the small collection, with mined negatives."""

from pathlib import Path
from typing import Any

from pyserini_ance.pipeline import experiment
from pyserini_ance.pipeline.teacher_training import MinedLists
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.reports.ranking_inputs import collection_of
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir

STAGE = {"batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "refresh": {"every_steps": 2}}
ANN = {"kind": "ann", "top_k": 8, "num_negatives": 3}
STAGES = {
    "ance": {**STAGE, "steps": 4, "terms": {"query": {"negatives": [ANN]}}, "evaluate": {"every_steps": 2}}
}


def train(recipe: Recipe, folder: Path) -> None:
    experiment.train(recipe, folder)


def make_mined_run(small_recipe: Any, run_processes: Any, folder: Path) -> RunDir:
    """Its two generations are those before steps 0 and 2."""
    run_processes(1, train, small_recipe(STAGES), folder, join=False)
    return RunDir(folder)


def lists_of(run: RunDir) -> MinedLists:
    """The lists of its last generation."""
    collection, last = collection_of(run), open_generation(run.generation("ance", 2), {})
    weights = {last.folder.name: last.weights}
    return MinedLists(collection, collection.split("train"), list(last.tables.values()), weights)
