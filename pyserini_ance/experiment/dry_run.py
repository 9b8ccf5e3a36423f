"""A dry run: a few steps of each stage on this machine, and from them the time and memory to come."""

import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import load_encoder, start_encoder
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.experiment.experiment import INITIAL, Experiment
from pyserini_ance.experiment.schedule import closing_encodings, documents_encoded, refresh_steps
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.products import Refresh
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.vectors.encode import encode_some
from pyserini_ance.vectors.precision import resolve_precision

SAMPLED_DOCUMENTS = 256
COLUMNS = ["stage", "seconds a step", "training seconds", "refresh and dev seconds"]


def dry_run(recipe: Recipe, data: PreparedData, steps: int, world: World) -> str:
    """Run `steps` steps of each stage from the starting encoder in a folder that is removed; a table, memory, total time.

    Called by all processes of `world`.
    """
    shortened = recipe.model_copy(update={"stages": {name: _shortened(stage, steps) for name, stage in recipe.stages.items()}})
    with _folder_of_all(world) as folder:
        experiment = Experiment(shortened, folder / "run", world)
        untrained = experiment.initial(INITIAL.stage, world.once(lambda: _begin(experiment)))
        experiment.rank_by_bm25(data, {})
        for name in recipe.stages:
            experiment.train_stage(name, data, untrained)
        seconds = {name: world.once(lambda name=name: experiment.log.seconds_spent(name)) for name in recipe.stages}
        encoder = load_encoder(untrained.encoder, world.device)
    mining, closing = (_seconds_to_encode(encoder, recipe, data, p, world) for p in (recipe.encoding.precision, recipe.test.precision))
    rows = [_row(name, stage, seconds[name], steps, mining, len(data.documents)) for name, stage in recipe.stages.items()]
    total = sum(row[column] for row in rows for column in COLUMNS[2:]) + closing_encodings(recipe) * closing
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return "\n".join(
        [
            f"measured over {steps} steps and the first mining of each stage, and {SAMPLED_DOCUMENTS} documents:",
            table(rows, COLUMNS),
            f"all documents once: {mining:.0f} seconds for mining, {closing:.0f} for the closing table ({closing_encodings(recipe)} times)",
            f"time to come: about {total / 60:.1f} minutes beside BM25; peak memory so far: {peak_gib:.2f} GiB",
        ]
    )


@contextmanager
def _folder_of_all(world: World) -> Iterator[Path]:
    """The first process makes it, and removes it when all have done."""
    with ExitStack() as made:
        name = world.once(lambda: made.enter_context(tempfile.TemporaryDirectory(prefix="pyserini_ance.")))
        if not Path(name).exists():
            raise FileNotFoundError(f"{name}, made by the first process, is not there for this one: set TMPDIR to a folder that all hosts share")
        yield Path(name)
        world.meet()


def _begin(experiment: Experiment) -> tuple[str, str]:
    experiment.run.create(dump(experiment.recipe))
    return experiment.publish_untrained(start_encoder(experiment.recipe.encoder, experiment.recipe.seed))


def _shortened(stage: Stage, steps: int) -> Stage:
    """The first `steps` steps, with the mining before the first, inline, and no dev measure."""
    refresh = stage.refresh and Refresh(every_steps=steps, chunks=stage.refresh.chunks)
    return stage.model_copy(update={"steps": steps, "refresh": refresh, "evaluate": None, "keep_optimizer": False})


def _row(name: str, stage: Stage, measured: dict[str, float], steps: int, mining: float, documents: int) -> dict:
    """A refresh takes what the first mining took; a dev measure between refreshes, its share of encoding all documents, unless these stay
    as they were encoded before the first step.
    """
    a_step, refreshes = measured["step"] / steps, refresh_steps(stage)
    between = documents_encoded(stage, documents) / documents - len(refreshes) if stage.train == "both" else 0
    visits = measured["documents"] + measured["refresh"] * max(1, len(refreshes)) + between * mining
    return dict(zip(COLUMNS, (name, f"{a_step:.3f}", round(a_step * stage.steps, 1), round(visits, 1)), strict=True))


def _seconds_to_encode(encoder: Encoder, recipe: Recipe, data: PreparedData, precision: str, world: World) -> float:
    """All documents, from the time of an even sample by tokens."""
    precision = world.once(lambda: resolve_precision(precision, recipe.device))
    rows = np.linspace(0, len(data.documents) - 1, min(SAMPLED_DOCUMENTS, len(data.documents))).astype(np.int64)
    start = time.perf_counter()
    encode_some(encoder, data.documents, rows, "document", precision, recipe.encoding.tokens_per_batch, "sample", world)
    lengths = data.documents.lengths(encoder.length_tokens("document"))
    return (time.perf_counter() - start) * float(lengths.sum() / lengths[rows].sum())
