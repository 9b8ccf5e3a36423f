"""Replaying a run: the adoptions that its decisions tell, to be repeated step for step."""

from math import inf
from pathlib import Path

from pyserini_ance.experiment.resume import is_of_recipe
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.orders import ProductKind
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.handover import Script
from pyserini_ance.trainer.resume import EVENTS, script_of


def read_replay(decisions: Path, recipe: Recipe) -> str:
    """The text of a run's decisions. Raises ValueError when they tell of no finished stage of this recipe, or of another recipe."""
    if not decisions.exists():
        raise FileNotFoundError(f"--replay {decisions}: no such file; expected the decisions.jsonl of a run")
    ended = {record["stage"] for record in read_json_lines(decisions) if record["event"] == "stage_end"}
    if missing := recipe.stages.keys() - ended:
        raise ValueError(f"--replay {decisions}: stage {', '.join(sorted(missing))} has no end there; replay a run of this recipe that finished")
    run = RunDir(decisions.parent)
    if run.recipe.exists() and not is_of_recipe(run, recipe, "name", "keep"):
        raise ValueError(f"--replay {decisions}: that run was of another recipe; replay it with: python -m pyserini_ance.train {run.recipe}")
    return decisions.read_text(encoding="utf-8")


def replay_scripts(decisions: Path, stage: str) -> dict[ProductKind, Script]:
    """What to repeat of a stage; nothing when the run is no replay."""
    if not decisions.exists():
        return {}
    records = read_json_lines(decisions)
    return {
        kind: script_of([r for r in records if r["event"] == event and r["stage"] == stage], until=inf) for kind, event in EVENTS.items()
    }
