"""Check an existing run before it is resumed or replayed: same recipe, same data, finished stages."""

from pathlib import Path

from pyserini_ance.data.collection import Collection
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.provenance import RUNTIME_KEYS
from pyserini_ance.runs.requests import ProductKind
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, read_json_lines
from pyserini_ance.trainer.products import PRODUCTS
from pyserini_ance.trainer.refresh import AdoptionLog

DESCRIPTIVE_KEYS = ("description", "expect")  # they describe the run and do not change it


def check_same_run(run: RunDir, recipe: Recipe, collection: Collection) -> None:
    """Raise FileNotFoundError if `run` holds no run, ValueError if its recipe or data differ from those
    given."""
    for path in (run.state, run.recipe, run.environment):
        if not path.exists():
            raise FileNotFoundError(
                f"{run.folder} holds no run to resume ({path.name} is missing). Remove --resume to "
                "start a new run"
            )
    check_same_recipe(run, recipe, f"pyserini-ance train {run.recipe} --output {run.folder} --resume")
    check_same_data(run, collection)


def check_same_recipe(run: RunDir, recipe: Recipe, command: str) -> None:
    """Raise ValueError if `run` was started with another recipe; `command` is what to type instead."""
    if not has_recipe(run, recipe):
        raise ValueError(
            f"{run.recipe} differs from the recipe given. Continue with the same recipe: {command}"
        )


def has_recipe(run: RunDir, recipe: Recipe, *ignored: str) -> bool:
    """Whether `run` was started with this recipe, regardless of the machine's settings and of the keys
    `ignored`."""
    saved = run.read_recipe()
    # Published figures do not change what is read.
    data = recipe.data.model_copy(update={"official": saved.data.official})
    same = {key: getattr(saved, key) for key in (*RUNTIME_KEYS, *DESCRIPTIVE_KEYS, *ignored)}
    return saved == recipe.model_copy(update={**same, "data": data})


def check_same_data(run: RunDir, collection: Collection) -> None:
    """Raise ValueError if `collection` is not the one that `run` was started with."""
    digest = data_digest(run)
    if digest != collection.digest:
        raise ValueError(
            f"the data (digest {collection.digest[:12]}) is not that which {run.folder} was started with "
            f"(digest {digest[:12]}): its negatives and rankings would refer to other documents. "
            "Restore the old data, or start again with --overwrite"
        )


def data_digest(run: RunDir) -> str:
    """The digest of the collection that the run was started with."""
    digest: str = read_json(run.environment)["data"]["digest"]
    return digest


def read_replay(decisions: Path, recipe: Recipe) -> str:
    """The text of a run's `decisions.jsonl`.

    Raises FileNotFoundError if there is none, ValueError if a stage of `recipe` did not finish in that run,
    or if that run has another recipe.
    """
    if not decisions.exists():
        raise FileNotFoundError(f"--replay {decisions}: no such file; expected the decisions.jsonl of a run")
    ended = {record["stage"] for record in read_json_lines(decisions) if record["event"] == "stage_end"}
    if missing := recipe.stages.keys() - ended:
        raise ValueError(
            f"--replay {decisions}: it records no end of stage {', '.join(sorted(missing))}; "
            "replay a finished run of this recipe"
        )
    run = RunDir(decisions.parent)
    if run.recipe.exists() and not has_recipe(run, recipe, "name", "retention"):
        raise ValueError(
            f"--replay {decisions}: that run has another recipe; replay it with: pyserini-ance train "
            f"{run.recipe}"
        )
    return decisions.read_text(encoding="utf-8")


def replay_logs(decisions: Path, stage: str) -> dict[ProductKind, AdoptionLog]:
    """The adoptions of a stage to repeat, by kind of product; empty if the run is not a replay."""
    if not decisions.exists():
        return {}
    records = [record for record in read_json_lines(decisions) if record.get("stage") == stage]
    return {
        product.kind: AdoptionLog.of([r for r in records if r["event"] == product.event], "replay")
        for product in PRODUCTS
    }
