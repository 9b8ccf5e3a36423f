"""Count and measure what a recipe will do: refreshes, encodings and disk, and the time of a few steps on this
machine."""

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder, Precision, resolve_precision
from pyserini_ance.encoders.load_save import initial_encoder, load_encoder
from pyserini_ance.evaluation.tables import table
from pyserini_ance.negatives.source import Source
from pyserini_ance.pipeline.experiment import Experiment
from pyserini_ance.pipeline.initial_weights import INITIAL
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import Product, Refresh
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.provenance import peak_memory_bytes
from pyserini_ance.vectors.encoding import encode_some

SAMPLED_DOCUMENTS = 256
GIB = 1 << 30
COLUMNS = ["stage", "seconds a step", "training seconds", "refresh and dev seconds"]


def refresh_steps(stage: Stage) -> set[int]:
    """The steps before which negatives are mined again."""
    return {step for step in range(stage.steps) if stage.refresh_is_due(step)}


def evaluation_steps(stage: Stage) -> set[int]:
    """The steps before which the dev measure is computed; `stage.steps` is the end of the stage."""
    return {step for step in range(stage.steps + 1) if stage.evaluation_is_due(step)}


def times_mined(stage: Stage, source: Source) -> int:
    """The number of tables that a source makes: one if it is static, else one per refresh."""
    return len(refresh_steps(stage)) if source.is_dynamic else 1


def open_at_once(stage: Stage) -> int:
    """The highest number of checkpoints whose products are pending, or done and not yet adopted."""
    products = (stage.refresh, stage.effective_evaluate)
    return sum(_open_at_once(product) for product in products if product)


def _open_at_once(product: Product) -> int:
    """See trainer/refresh.py."""
    if product.lag_steps is not None:
        return math.ceil(product.lag_steps / product.every_steps)
    return math.ceil(product.staleness_steps / product.every_steps) + 1 if isinstance(product, Refresh) else 3


def checkpoints_at_once(recipe: Recipe) -> int:
    """The highest number of checkpoints in the run directory at any time.

    They are the initial ones, the newest and the best of each stage, and those with pending products. While a
    stage runs, its previous best is kept until the new one is complete, so are those that it averages, and a
    new checkpoint is written before an old one is removed.
    """
    stages = recipe.stages.values()
    kept = sum(_kept(stage, recipe) for stage in stages)
    return 2 + len(recipe.external_starts) + kept + max(map(_while_running, stages))


def moments_at_once(recipe: Recipe) -> int:
    """The highest number of checkpoints with optimizer moments: those of the running stage.

    With `keep_optimizer`, finished stages keep theirs for a while; the number is then a bound.
    """
    stages = recipe.stages.values()
    if any(stage.keep_optimizer for stage in stages):
        return checkpoints_at_once(recipe) - 1 - len(recipe.external_starts)
    return 1 + max(_kept(stage, recipe) + _while_running(stage) for stage in stages)


def _kept(stage: Stage, recipe: Recipe) -> int:
    return recipe.retention.save_total_limit + (stage.evaluate is not None)


def _while_running(stage: Stage) -> int:
    return (stage.evaluate is not None) + open_at_once(stage) + averaged_at_once(stage)


def averaged_at_once(stage: Stage) -> int:
    """The average, the checkpoints that are kept for it, and the trained best before the last."""
    return 0 if stage.average is None else 2 + (stage.average.checkpoints or 1)


def vectors_at_once(recipe: Recipe) -> int:
    """The highest number of copies of all document vectors.

    They are those of the newest checkpoint, of pending ones, of the final evaluation's precision, and the
    index.
    """
    return 3 + max(open_at_once(stage) for stage in recipe.stages.values())


def generations_kept(recipe: Recipe, stage: Stage, source: Source) -> int:
    """The highest number of tables of a source in the run directory at any time."""
    mined, keep = times_mined(stage, source), recipe.retention.keep_negatives
    return mined if keep == "all" else min(mined, keep + 1 + open_at_once(stage))


def candidates_kept(recipe: Recipe) -> int:
    """The highest number of candidates per anchor in all tables of the run directory together."""
    total = 0
    previous: dict[str, int] = {}
    for stage in recipe.stages.values():
        widths: dict[str, int] = {}
        for name, term in stage.terms.items():
            of_sources = [source.max_candidates(previous.get(name, 0)) for source in term.negatives]
            generations = [generations_kept(recipe, stage, source) for source in term.negatives]
            total += sum(width * count for width, count in zip(of_sources, generations, strict=True))
            widths[name] = sum(of_sources)
        previous = widths
    return total


def documents_encoded(stage: Stage, documents: int) -> int:
    """The number of documents that all refreshes and dev evaluations of a stage encode.

    An evaluation at the step of a refresh uses its vectors. If only the query tower trains, all documents are
    encoded once, before the first step.
    """
    if stage.trainable == "query_tower":
        return documents
    refreshes = refresh_steps(stage)
    sample = (stage.evaluate and stage.evaluate.sample_documents) or documents
    between = evaluation_steps(stage) - refreshes
    return len(refreshes) * documents + len(between) * min(documents, sample)


def evaluation_encodings(recipe: Recipe) -> int:
    """The number of times that the final evaluation encodes the collection, at most.

    It does so once for each document tower among the rows that the recipe wants. A stage that trains only the
    query tower has the document tower of its start.
    """
    rows = recipe.final_evaluation.rows
    *earlier, last = recipe.stages
    stages = [*earlier, last] if "stages" in rows else [last]
    towers = {_document_tower(recipe, name) for name in stages}
    towers |= {"untrained"} & {*rows} | ({*recipe.external_starts} if "start" in rows else set())
    return len(towers)


def _document_tower(recipe: Recipe, name: str) -> str:
    """The row whose document tower the result of a stage has: its own, or that of its start."""
    stage = recipe.stages[name]
    if stage.trainable == "both":
        return name
    if stage.starts_from_checkpoint:
        return next(row for row, start in recipe.external_starts.items() if start == stage.init_from)
    before = recipe.stage_before(name) if stage.init_from == "previous" else None
    if isinstance(stage.init_from, InitFrom):
        before = stage.init_from.stage
    return "untrained" if before is None else _document_tower(recipe, before)


def dry_run(recipe: Recipe, data: PreparedData, steps: int, world: World) -> str:
    """Run `steps` steps of each stage from the untrained encoder, in a temporary run directory.

    Returns a table of times, the memory and the total time. Called by all processes of `world`.
    """
    stages = {name: _shortened(stage, steps) for name, stage in recipe.stages.items()}
    shortened = recipe.model_copy(update={"stages": stages})
    with _shared_folder(world) as folder:
        experiment = Experiment(shortened, folder / "run", world)
        untrained = experiment.initial_checkpoint(INITIAL.stage, world.on_main(lambda: _begin(experiment)))
        experiment.rank_by_bm25(data, {})
        for name in recipe.stages:
            experiment.train_stage(name, data, untrained)
        seconds = {name: _seconds_spent(experiment, name) for name in recipe.stages}
        encoder = load_encoder(untrained.encoder, world.device)
    mining, final = (
        _seconds_to_encode(encoder, recipe, data, precision, world)
        for precision in (recipe.encoding.precision, recipe.final_evaluation.precision)
    )
    rows = [
        _row(name, stage, seconds[name], steps, mining, len(data.documents))
        for name, stage in recipe.stages.items()
    ]
    encodings = evaluation_encodings(recipe)
    total = sum(row[column] for row in rows for column in COLUMNS[2:]) + encodings * final
    memory = _peak_memory(world)
    lines = [
        f"measured over {steps} steps and the first mining of each stage, and {SAMPLED_DOCUMENTS} documents:",
        table(rows, COLUMNS),
        f"all documents once: {mining:.0f} seconds for mining, {final:.0f} for the final evaluation "
        f"({encodings} times)",
        f"expected total: about {total / 60:.1f} minutes without BM25",
        f"peak memory so far: {memory}",
    ]
    return "\n".join(lines)


def _peak_memory(world: World) -> str:
    """The peak memory of each process of `world`, in words. Called by all processes."""
    columns = list(zip(*(peaks.values() for peaks in peak_memory_bytes(world)), strict=True))
    labels = ("each process" if world.size > 1 else "this process", "its GPU, by torch", "its largest child")
    phrases = [
        f"{', '.join(f'{peak / GIB:.2f}' for peak in column)} GiB ({label})"
        for label, column in zip(labels, columns, strict=True)
        if any(column)
    ]
    if not any(columns[2]):
        phrases.append("no child ran: BM25's rankings were in the cache, or there are none")
    return "; ".join(phrases)


def _seconds_spent(experiment: Experiment, stage: str) -> dict[str, float]:
    return experiment.world.on_main(lambda: experiment.log.seconds_spent(stage))


@contextmanager
def _shared_folder(world: World) -> Iterator[Path]:
    """A temporary folder that the main process makes, and removes when all processes are done."""
    with ExitStack() as stack:
        prefix = "pyserini_ance."
        name: str = world.on_main(lambda: stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        if not Path(name).exists():
            raise FileNotFoundError(
                f"this process cannot see {name}, which the main process has made: set TMPDIR to a "
                "folder that all "
                "hosts share"
            )
        yield Path(name)
        world.barrier()


def _begin(experiment: Experiment) -> tuple[str, str]:
    recipe = experiment.recipe
    experiment.run_dir.create(dump(recipe))
    return experiment.publish_untrained(initial_encoder(recipe.encoder, recipe.seed))


def _shortened(stage: Stage, steps: int) -> Stage:
    """The first `steps` steps of a stage, with the mining before the first in sync, and no dev measure."""
    refresh = stage.refresh and Refresh(every_steps=steps, query_chunks=stage.refresh.query_chunks)
    changes = {"steps": steps, "refresh": refresh, "evaluate": None, "average": None, "keep_optimizer": False}
    return stage.model_copy(update=changes)


def _row(
    name: str, stage: Stage, measured: dict[str, float], steps: int, mining: float, documents: int
) -> dict[str, Any]:
    """The expected seconds of a stage, from those `measured` over `steps` steps.

    A refresh takes as long as the first mining. A dev evaluation between refreshes takes its share of
    encoding all documents, unless the documents stay as they were encoded before the first step.
    """
    step_seconds, refreshes = measured["step"] / steps, refresh_steps(stage)
    if stage.trainable == "both":
        between = documents_encoded(stage, documents) / documents - len(refreshes)
    else:
        between = 0
    refreshing = measured["documents"] + measured["refresh"] * max(1, len(refreshes)) + between * mining
    values = (name, f"{step_seconds:.3f}", round(step_seconds * stage.steps, 1), round(refreshing, 1))
    return dict(zip(COLUMNS, values, strict=True))


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
