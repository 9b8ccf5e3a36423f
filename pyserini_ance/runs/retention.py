"""Retention: which checkpoints, vectors, tables and dev scores of a run stay; the others are removed.

A folder that another process reads stays too; the last process that reads it removes it.
"""

from collections.abc import Collection

from pyserini_ance.negatives.snapshot import TEACHER_VECTORS
from pyserini_ance.recipe.models import Recipe, Retention
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import in_use
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import remove_leftovers
from pyserini_ance.storage.publish import is_complete, remove_unless_leased


def prune_stage(
    run: RunDir,
    stage: str,
    keep: Retention,
    checkpoints: Collection[int],
    vectors: Collection[int],
    tables: Collection[int],
) -> None:
    """Remove checkpoints, vectors and tables of `stage` that are not needed, read or kept by `keep`.

    `checkpoints`, `vectors` and `tables` are the steps whose checkpoints, vectors and tables training still
    needs.
    """
    complete = [folder for folder in sorted(run.checkpoints.glob(f"{stage}-????????")) if is_complete(folder)]
    needed = {run.checkpoint(stage, step) for step in checkpoints} | set(complete[-keep.save_total_limit :])
    needed_vectors = {
        Checkpoint.open(f, verify=False).document_weights[:16]
        for f in complete
        if f in {run.checkpoint(stage, s) for s in vectors}
    }
    for folder in complete:
        if folder not in needed:
            remove_unless_leased(folder)
    if vectors:  # a teacher's vectors serve all refreshes
        needed_vectors.add(TEACHER_VECTORS)
    for folder in sorted(run.scratch.glob("[!.]*")):
        if folder.name.partition("-")[0] not in needed_vectors:
            remove_unless_leased(folder)
    if keep.keep_negatives != "all":
        generations = [
            folder for folder in sorted(run.negatives.glob(f"{stage}-????????")) if is_complete(folder)
        ]
        needed = {run.generation(stage, step) for step in tables} | set(generations[-keep.keep_negatives :])
        for folder in generations:
            if folder not in needed:
                remove_unless_leased(folder)


def clean_up(run: RunDir, recipe: Recipe) -> None:
    """Remove what the stages that have ended need no more: all vectors, checkpoints that the recipe does not
    keep, products that were never adopted, and what dead processes left unfinished."""
    log = RunLog(run, writes=False)
    for ended in log.decisions("stage_end"):
        name = ended["stage"]
        adopted = [record for record in log.decisions("adopt") if record["stage"] == name]
        tables = {record["checkpoint_step"] for record in in_use(recipe.stages[name], adopted)}
        prune_stage(run, name, recipe.retention, {step_of(ended["result"])}, set(), tables)
        _remove_unadopted(run, name, ended["step"], log)
    remove_leftovers(run.folder)


def clean_up_finished(run: RunDir, recipe: Recipe) -> None:
    """`clean_up` by the last process that works on a run; nothing if the run has not finished."""
    if run.read_state()["status"] == "finished":
        clean_up(run, recipe)


def _remove_unadopted(run: RunDir, stage: str, end: int, log: RunLog) -> None:
    """Remove the products of `stage`, which ended at step `end`, that training did not wait for.

    The dev score of an average has a later step; it is recorded with the average.
    """
    adopted = {
        event: {record["checkpoint_step"] for record in log.decisions(event) if record["stage"] == stage}
        for event in ("adopt", "evaluate")
    }
    for folder in sorted(run.negatives.glob(f"{stage}-????????")):
        if is_complete(folder) and step_of(folder.name) not in adopted["adopt"]:
            remove_unless_leased(folder)
    for path in sorted(run.evaluations.glob(f"{stage}-????????.json")):
        if step_of(path.stem) <= end and step_of(path.stem) not in adopted["evaluate"]:
            path.unlink(missing_ok=True)
