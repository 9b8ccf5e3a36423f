"""Retention: what of a stage stays in the run directory, beside what training still needs and what somebody reads."""

from collections.abc import Collection

from pyserini_ance.recipe.models import Retention
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.lease import remove_unless_leased
from pyserini_ance.storage.publish import is_complete


def prune_stage(
    run: RunDir, stage: str, keep: Retention, checkpoints: Collection[int], vectors: Collection[int], tables: Collection[int]
) -> None:
    """Remove what of `stage` is neither kept nor needed; `checkpoints`, `vectors` and `tables` are steps whose are needed."""
    complete = [folder for folder in sorted(run.checkpoints.glob(f"{stage}-????????")) if is_complete(folder)]
    needed = {run.checkpoint(stage, step) for step in checkpoints} | set(complete[-keep.checkpoints :])
    of_vectors = {Checkpoint.open(f, verify=False).document_weights[:16] for f in complete if f in {run.checkpoint(stage, s) for s in vectors}}
    for folder in complete:
        if folder not in needed:
            remove_unless_leased(folder)
    for folder in sorted(run.scratch.glob("[!.]*")):
        if folder.name.partition("-")[0] not in of_vectors:
            remove_unless_leased(folder)
    if keep.tables != "all":
        generations = [folder for folder in sorted(run.negatives.glob(f"{stage}-????????")) if is_complete(folder)]
        needed = {run.generation(stage, step) for step in tables} | set(generations[-keep.tables :])
        for folder in generations:
            if folder not in needed:
                remove_unless_leased(folder)
