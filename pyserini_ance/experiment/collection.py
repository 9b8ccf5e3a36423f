"""The collection of a run, for whoever looks at its rankings afterwards."""

from pyserini_ance.data.collection import Collection
from pyserini_ance.experiment.prepare import find_collection, stored_collection
from pyserini_ance.experiment.resume import data_digest, refuse_other_data
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir


def collection_of(run: RunDir) -> Collection:
    """Memory-mapped where the cache of its recipe has it, else read again.

    Raises FileNotFoundError for what is no run directory, ValueError when the data is not what the run was begun with.
    """
    if missing := [path for path in (run.recipe, run.environment) if not path.exists()]:
        raise FileNotFoundError(f"{run.folder} is no run directory (no {missing[0].name}); name one that `python -m pyserini_ance.train` has left")
    recipe = load(run.recipe).recipe
    found = find_collection(recipe, data_digest(run))
    if found is None:
        found = stored_collection(recipe)
        refuse_other_data(run, found)
    return found


def collection_with(recipe: Recipe, split: str) -> Collection:
    """The recipe's data with the queries of `split`, whether or not the recipe tests on it; memory-mapped, read unless the cache has it.

    Raises ValueError for a split that the data does not have.
    """
    # What the recipe measures on its own splits need not fit this one, which may have no judgments.
    asked = recipe.test.model_copy(update={"split": (split,), "measures": {}, "query_measures": {}, "rerank": {}})
    return stored_collection(recipe.model_copy(update={"test": asked}))
