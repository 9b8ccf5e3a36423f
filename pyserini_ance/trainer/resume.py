"""Resume a run: check that it is the same run, and continue a stage from its newest checkpoint."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.components import absolute
from pyserini_ance.recipe.load import differences
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, newest_progress
from pyserini_ance.runs.generation import ProductKind
from pyserini_ance.runs.provenance import RUNTIME_KEYS
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, complete_steps, step_of
from pyserini_ance.storage.files import read_json, read_json_lines
from pyserini_ance.storage.publish import read_manifest
from pyserini_ance.trainer.products import QUEUES
from pyserini_ance.trainer.refresh import AdoptionLog, RefreshQueue

SHOWN = 5  # differing keys in an error message


def resume_stage(
    run: RunDir, name: str, queues: Sequence[RefreshQueue], log: RunLog, world: World
) -> tuple[TrainingProgress, Checkpoint] | None:
    """Return the newest checkpoint of a stage with its progress; None if there is no checkpoint yet.

    Records after it are discarded, the tables in use then are opened, and pending requests are submitted
    again. Adoptions of `adopt: when_ready` after the checkpoint are kept and repeated: they depended on time,
    and later steps depended on them.
    """
    ready = [queue for queue in queues if queue.settings.lag_steps is None]
    repeated = [queue.event for queue in ready if queue.adoption_log.mode != "replay"]

    def known_weights() -> Iterator[tuple[int, str]]:
        """By step, of checkpoints and of products, which serve even if their checkpoint was removed since."""
        for folder in complete_steps(run.checkpoints, name):
            yield step_of(folder.name), Checkpoint.open(folder, verify=False).weights
        for folder in complete_steps(run.negatives, name):
            yield step_of(folder.name), read_manifest(folder, verify=False)["weights"]
        for path in run.evaluations.glob(f"{name}-????????.json"):
            yield step_of(path.stem), read_json(path)["weights"]

    def read_state() -> dict[str, Any]:
        progress = newest_progress(run, name)
        log.forget_after(name, progress.step if progress else 0, repeated)
        return {
            "progress": progress and asdict(progress),
            "decisions": [r for queue in QUEUES for r in log.decisions(queue.event) if r["stage"] == name],
            "weights": list(known_weights()),
        }

    state = world.on_main(read_state)
    if state["progress"] is None:
        return None
    progress = TrainingProgress(**state["progress"])
    weights = dict(state["weights"])
    for queue in queues:
        records = [record for record in state["decisions"] if record["event"] == queue.event]
        before = [record for record in records if record["step"] < progress.step]
        after = [record for record in records if record["step"] >= progress.step]
        try:
            queue.restore(before)
        except FileNotFoundError as error:
            newest = run.checkpoint(name, progress.step)
            cure = f"To go on from an earlier step instead, remove {newest} and resume again"
            raise RuntimeError(f"step {progress.step} needs what is gone: {error} {cure}") from error
        if after and queue.adoption_log.mode != "replay":  # a replay keeps its own log
            queue.adoption_log = AdoptionLog.of(after, "resumed")
        due = (step for step in range(1, progress.step) if queue.is_due(step))
        adopted = {record["checkpoint_step"] for record in before}
        queue.resubmit([(step, weights.get(step)) for step in due], adopted)
    return progress, Checkpoint.open(run.checkpoint(name, progress.step))


def check_same_run(run: RunDir, recipe: Recipe, collection: Collection) -> None:
    """Raise FileNotFoundError if `run` holds no run, ValueError if its recipe or data differ from those
    given."""
    for path in (run.state, run.recipe, run.environment):
        if not path.exists():
            cure = "Start a new one without resume (--resume)"
            raise FileNotFoundError(f"{run.folder} holds no run to resume ({path.name} is missing). {cure}")
    check_same_recipe(run, recipe, run.resume_command())
    check_same_data(run, collection)


def check_same_recipe(run: RunDir, recipe: Recipe, command: str) -> None:
    """Raise ValueError, with the keys that differ, if `run` was started with another recipe; `command` is
    what to type instead."""
    if differing := differing_settings(run, recipe):
        further = f"To train its result further, start another run with init_from: {{folder: {run.model}}}. "
        raise ValueError(
            f"{run.recipe} differs from the recipe given ({differing}). "
            f"A run keeps its recipe: to train the one given from the start, replace the run by `train` with "
            f"--overwrite. {further if run.model.is_dir() else ''}To continue the run with its own recipe: "
            f"{command}"
        )


def differing_settings(run: RunDir, recipe: Recipe, *ignored: str) -> str:
    """The first settings in which a run differs from a recipe, in words; "" if it has that recipe.

    The machine's settings, published figures and the keys `ignored` do not count.
    """
    left_out = {**RUNTIME_KEYS, **dict.fromkeys(("expect", *ignored), True)}
    of_run, given = (
        absolute(one).model_dump(mode="json", exclude=left_out) for one in (run.read_recipe(), recipe)
    )
    for settings in (of_run, given):
        settings["data"].pop("official", None)
        settings["order of stages"] = list(settings["stages"])
    differing = [f"{key}: {old} in the run, {new} given" for key, old, new in differences(of_run, given)]
    more = f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return f"{'; '.join(differing[:SHOWN])}{more}"


def check_same_data(run: RunDir, collection: Collection) -> None:
    """Raise ValueError if `collection` is not the one that `run` was started with."""
    if (digest := data_digest(run)) != collection.digest:
        raise ValueError(
            f"the data (digest {collection.digest[:12]}) is not that which {run.folder} was started with "
            f"(digest {digest[:12]}): its negatives and rankings would refer to other documents. "
            "Restore the old data, or start again with --overwrite"
        )


def data_digest(run: RunDir) -> str:
    return str(read_json(run.environment)["data"]["digest"])


def read_replay(decisions: Path, recipe: Recipe) -> str:
    """The text of a run's `decisions.jsonl`.

    Raises FileNotFoundError if there is none, ValueError if a stage of `recipe` did not finish in that run,
    or if that run has another recipe.
    """
    given = f"--replay {decisions}:"
    if not decisions.exists():
        raise FileNotFoundError(f"{given} no such file; expected the decisions.jsonl of a run")
    ended = {record["stage"] for record in read_json_lines(decisions) if record["event"] == "stage_end"}
    if missing := ", ".join(sorted(recipe.stages.keys() - ended)):
        raise ValueError(f"{given} it records no end of stage {missing}; replay a finished run")
    run = RunDir(decisions.parent)
    if run.recipe.exists() and differing_settings(run, recipe, "name", "save_total_limit"):
        cure = f"replay it with: pyserini-ance train {quote(str(run.recipe))}"
        raise ValueError(f"{given} that run has another recipe; {cure}")
    return decisions.read_text(encoding="utf-8")


def replay_logs(decisions: Path, stage: str) -> dict[ProductKind, AdoptionLog]:
    """The adoptions of a stage to repeat, by kind of product; empty if the run is not a replay."""
    if not decisions.exists():
        return {}
    records = [record for record in read_json_lines(decisions) if record.get("stage") == stage]
    return {
        one.kind: AdoptionLog.of([r for r in records if r["event"] == one.event], "replay") for one in QUEUES
    }
