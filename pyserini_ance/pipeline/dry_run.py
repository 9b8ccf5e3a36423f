"""Measure the time and memory of a few steps of a recipe on this machine."""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import Precision, resolve_precision
from pyserini_ance.encoders.load_save import initial_encoder, load_encoder
from pyserini_ance.evaluation.tables import table
from pyserini_ance.pipeline.experiment import Experiment
from pyserini_ance.pipeline.initial_weights import INITIAL
from pyserini_ance.pipeline.plan import documents_encoded, evaluation_encodings, refresh_steps
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import Refresh
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.provenance import highest_peak_bytes
from pyserini_ance.vectors.encoding import encode_some

SAMPLED_DOCUMENTS = 256
GIB = 1 << 30
COLUMNS = ["stage", "seconds a step", "training seconds", "refresh and dev seconds"]


def dry_run(recipe: Recipe, data: PreparedData, steps: int, world: World) -> str:
    """Run `steps` steps of each stage from the untrained encoder, in a temporary run directory.

    The negatives of each stage are mined before its first step, in sync; dev is not measured. Returns a table
    of times, the memory and the total time. Called by all processes of `world`.
    """
    stages = {}
    for name, stage in recipe.stages.items():  # at the learning rates of the whole stage
        refresh = stage.refresh and Refresh(every_steps=steps, query_chunks=stage.refresh.query_chunks)
        schedule = stage.lr_schedule.model_copy(update={"total_steps": stage.horizon_steps})
        changes = {"steps": steps, "refresh": refresh, "evaluate": None, "keep_optimizer": False}
        stages[name] = stage.model_copy(update={**changes, "lr_schedule": schedule})
    teachers = {name: one.model_copy(update={"steps": steps}) for name, one in recipe.teachers.items()}
    short = recipe.model_copy(update={"stages": stages, "teachers": teachers})
    with ExitStack() as stack:
        folder: str = world.on_main(
            lambda: stack.enter_context(tempfile.TemporaryDirectory(prefix="pyserini_ance."))
        )
        experiment = Experiment(short, Path(folder, "run"), world)

        def begin() -> tuple[str, str]:
            experiment.run_dir.create(dump(short))
            return experiment.publish_untrained(initial_encoder(recipe.encoder, recipe.seed))

        untrained = Checkpoint(experiment.run_dir.checkpoint(INITIAL.stage, 0), *world.on_main(begin))
        experiment.rank_by_bm25(data, {})
        for name in recipe.stages:
            experiment.train_teachers_after(name, data, experiment.train_stage(name, data, untrained))
        spent = experiment.log.seconds_spent
        seconds = world.on_main(lambda: {name: spent(name) for name in recipe.stages})
        of_teachers = world.on_main(experiment.log.teacher_seconds)
        encoder = load_encoder(untrained.encoder, world.device)
        world.barrier()  # the main process then removes the folder
    mining, final = (
        _seconds_to_encode(encoder, recipe, data, precision, world)
        for precision in (recipe.encoding.precision, recipe.final_evaluation.precision)
    )
    rows: list[dict[str, Any]] = []

    def add_row(name: str, step_seconds: float, all_steps: int, refreshing: float) -> None:
        cells = (name, f"{step_seconds:.3f}", round(step_seconds * all_steps, 1), round(refreshing, 1))
        rows.append(dict(zip(COLUMNS, cells, strict=True)))

    for name, stage in recipe.stages.items():
        measured = seconds[name]
        # A refresh takes as long as the first mining. A dev evaluation between refreshes takes its share of
        # encoding all documents, unless these stay as they were encoded before the first step.
        refreshes, documents = len(refresh_steps(stage)), len(data.documents)
        between = 0.0
        if stage.trainable == "both":
            between = documents_encoded(stage, documents) / documents - refreshes
        refreshing = measured["documents"] + measured["refresh"] * max(1, refreshes) + between * mining
        add_row(name, measured["step"] / steps, stage.steps, refreshing)
    for name, teacher in recipe.teachers.items():
        # An upper bound: what its process takes to start counts as steps, and the next stage's first refresh
        # takes the vectors of its mining if it starts from the same weights.
        all_steps = teacher.steps_over(len(data.split.queries))
        measured = of_teachers[name]
        add_row(name, measured["train"] / steps, all_steps, measured["mine"])
    encodings = evaluation_encodings(recipe)
    total = sum(row[column] for row in rows for column in COLUMNS[2:]) + encodings * final
    memory = [f"{kind} {peak / GIB:.2f} GiB" for kind, peak in highest_peak_bytes(world).items() if peak]
    lines = [
        f"measured over {steps} steps and the first mining of each stage, and {SAMPLED_DOCUMENTS} documents:",
        table(rows, COLUMNS),
        f"all documents once: {mining:.0f} seconds for mining, {final:.0f} for the final evaluation "
        f"({encodings} times)",
        f"expected total: {'at most ' if recipe.teachers else ''}about {total / 60:.1f} minutes without BM25",
        f"peak memory: {', '.join(memory)}",
    ]
    return "\n".join(lines)


def _seconds_to_encode(
    encoder: Encoder, recipe: Recipe, data: PreparedData, precision: str, world: World
) -> float:
    """The expected seconds to encode all documents, from those of an even sample, in proportion to the
    tokens."""
    resolved: Precision = world.on_main(lambda: resolve_precision(precision, recipe.device))
    sampled = min(SAMPLED_DOCUMENTS, len(data.documents))
    rows = np.linspace(0, len(data.documents) - 1, sampled).astype(np.int64)
    start = time.perf_counter()
    tokens_per_batch = recipe.encoding.tokens_per_batch
    encode_some(encoder, data.documents, rows, "document", resolved, tokens_per_batch, "sample", world)
    seconds = time.perf_counter() - start
    lengths = data.documents.lengths(encoder.length_tokens("document"))
    return seconds * float(lengths.sum() / lengths[rows].sum())
