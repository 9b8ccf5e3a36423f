"""Variants: which runs differ by chance alone."""

from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.start import Start
from pyserini_ance.runs.rundir import RunDir, run_folder
from pyserini_ance.storage.files import sha256_json

MAY_CHANGE = ("cache", "device", "threads", "refresher")  # where a run computes, not what


def variant(recipe: Recipe) -> str:
    """A digest of all that may change a result but the seed, its own and that of the runs it starts from: runs that share it differ by
    chance alone. A run that is gone counts by its name.
    """
    tells_nothing = dict.fromkeys(("seed", "expect", "about", "keep", *MAY_CHANGE), True)
    told = recipe.model_dump(mode="json", exclude={**tells_nothing, "data": {"official"}})
    for name, start in _starts(recipe).items():
        if (run := run_behind(start)).recipe.exists():
            told["stages"][name]["start"] = {"variant": variant(load(run.recipe).recipe), "stage": start.stage, "changes": start.changes}
    return sha256_json(told)[:12]


def variant_of(run: RunDir, recorded: str) -> str:
    """As this version reads the run's recipe, which may be older than some keys; `recorded` where that, or a run it starts from, is gone."""
    try:
        recipe = load(run.recipe).recipe
        whole = all(run_behind(start).recipe.exists() for start in _starts(recipe).values())
        return variant(recipe) if whole else recorded
    except (FileNotFoundError, ValueError):
        return recorded


def run_behind(start: Start) -> RunDir:
    """Where the run lies that a stage starts from."""
    return RunDir(run_folder(load(start.recipe).recipe.name) if start.recipe else start.run)


def _starts(recipe: Recipe) -> dict[str, Start]:
    """By stage, those from runs."""
    return {name: stage.start for name, stage in recipe.stages.items() if stage.starts_outside and not stage.start.folder}
