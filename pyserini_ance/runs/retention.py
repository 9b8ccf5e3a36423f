"""Retention: which checkpoints, vectors, tables and dev scores of a run stay; the others are removed.

A folder that another process reads stays too; the last process that reads it removes it.
"""

from collections.abc import Collection

from pyserini_ance.negatives.snapshot import TEACHER_VECTORS
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, complete_steps, step_of
from pyserini_ance.storage.files import remove_leftovers
from pyserini_ance.storage.publish import remove_unless_leased


def prune_stage(
    run: RunDir, stage: str, recipe: Recipe, checkpoints: Collection[int], vectors: Collection[int]
) -> None:
    """Remove checkpoints and vectors of `stage` that are neither needed, nor read, nor kept by the recipe.

    `checkpoints` and `vectors` are the steps whose checkpoints and vectors training still needs.
    """
    complete = complete_steps(run.checkpoints, stage)
    needed = {run.checkpoint(stage, step) for step in checkpoints} | set(complete[-recipe.save_total_limit :])
    read = {run.checkpoint(stage, step) for step in vectors}
    needed_vectors = {Checkpoint.open(f, verify=False).document_weights[:16] for f in complete if f in read}
    if vectors:  # a teacher's vectors serve all refreshes
        needed_vectors.add(TEACHER_VECTORS)
    unneeded = [folder for folder in complete if folder not in needed]
    unneeded += [
        f for f in sorted(run.scratch.glob("[!.]*")) if f.name.partition("-")[0] not in needed_vectors
    ]
    for folder in unneeded:
        remove_unless_leased(folder)


def clean_up(run: RunDir, recipe: Recipe) -> None:
    """Remove what the stages that have ended need no more: all vectors, checkpoints that the recipe does not
    keep, products that were never adopted, and what dead processes left unfinished."""
    log = RunLog(run, writes=False)
    for ended in log.decisions("stage_end"):
        name = ended["stage"]
        adopted = {record["checkpoint_step"] for record in log.decisions("adopt", name)}
        prune_stage(run, name, recipe, {step_of(ended["result"])}, set())
        for folder in complete_steps(run.negatives, name):
            if step_of(folder.name) not in adopted:
                remove_unless_leased(folder)
        keep = {record["checkpoint_step"] for record in log.decisions("evaluate", name)}
        for path in sorted(run.evaluations.glob(f"{name}-????????.json")):
            if step_of(path.stem) not in keep:
                path.unlink(missing_ok=True)
    remove_leftovers(run.folder)


def clean_up_finished(run: RunDir, recipe: Recipe) -> None:
    """`clean_up` by the last process that works on a run; nothing if the run has not finished."""
    if run.read_state()["status"] == "finished":
        clean_up(run, recipe)
