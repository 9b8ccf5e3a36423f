"""Resuming: whether what is asked for is what the run directory holds."""

from pyserini_ance.data.collection import Collection
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.runs.variant import MAY_CHANGE
from pyserini_ance.storage.files import read_json

TOLD = ("about", "expect")  # of what it should come to


def refuse_other_run(run: RunDir, recipe: Recipe, collection: Collection) -> None:
    """Raises FileNotFoundError when `run` holds no run, ValueError when its recipe or its data differ from those given."""
    for path in (run.state, run.recipe, run.environment):
        if not path.exists():
            raise FileNotFoundError(f"{run.folder} holds no run to resume (no {path.name}); leave out --resume to start one")
    refuse_other_recipe(run, recipe, f"python -m pyserini_ance.train {run.recipe} --output {run.folder} --resume")
    refuse_other_data(run, collection)


def refuse_other_recipe(run: RunDir, recipe: Recipe, command: str) -> None:
    """`command` is what to type instead."""
    if not is_of_recipe(run, recipe):
        raise ValueError(f"{run.recipe} differs from the recipe given; go on with the same one: {command}")


def is_of_recipe(run: RunDir, recipe: Recipe, *but: str) -> bool:
    """Whether `run` was begun with this recipe, wherever it computed, and whatever is said under the keys in `but`."""
    saved = load(run.recipe).recipe
    published = {"data": recipe.data.model_copy(update={"official": saved.data.official})}  # changes nothing that is read
    return saved == recipe.model_copy(update={key: getattr(saved, key) for key in (*MAY_CHANGE, *TOLD, *but)} | published)


def refuse_other_data(run: RunDir, collection: Collection) -> None:
    digest = data_digest(run)
    if digest != collection.digest:
        raise ValueError(
            f"the data is not what {run.folder} was begun with (digest {collection.digest[:12]}, then {digest[:12]}): "
            f"its negatives and rankings would mean other documents. Bring the old data back, or start again with --overwrite."
        )


def data_digest(run: RunDir) -> str:
    """The digest of the collection that the run was begun with."""
    return read_json(run.environment)["data"]["digest"]
