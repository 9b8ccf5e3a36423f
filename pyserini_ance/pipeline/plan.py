"""Describe what a recipe will do before it runs: data, sizes, steps, encodings; with `--dry-steps`, times.

The counts are arithmetic on the recipe and the data. Time and memory are measured: `dry_run`.
"""

import copy
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.adapters import Adapters, trained_weights
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import Precision, resolve_precision
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder, prepare_to_train
from pyserini_ance.evaluation.tables import table, table_with_legend
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.data_checks import data_warnings
from pyserini_ance.pipeline.initial_weights import INITIAL, describe_initial_weights
from pyserini_ance.pipeline.preparation import check_encoder, prepare, stored_collection, tokenize
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import Refresh
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.checkpoint import Checkpoint, publish_checkpoint
from pyserini_ance.runs.provenance import highest_peak_bytes
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.storage.publish import leased
from pyserini_ance.vectors.encoding import encode_some

SAMPLED_DOCUMENTS = 256
COLUMNS = ["stage", "seconds a step", "training seconds", "refresh and dev seconds"]  # of a dry run
GIB, MIB = 1 << 30, 1 << 20
EPOCHS = "epochs: how many times each training query is drawn"


def plan(recipe: Recipe) -> str:
    """Read and check the data, and describe sizes, steps and encodings."""
    return _describe(recipe, tokenize(recipe, stored_collection(recipe)))


def measured_plan(recipe: Recipe, steps: int, scratch: Path | None = None) -> str | None:
    """The plan with times, measured as in `dry_run`, on all processes that torchrun started.

    None on all processes but the main one.
    """
    with World.join(recipe.device).session() as world:
        data = prepare(recipe, world)
        measured = dry_run(recipe, data, steps, world, scratch)
    if not world.is_main:
        return None
    return "\n".join([*describe_initial_weights(recipe), _describe(recipe, data), "", measured])


def _describe(recipe: Recipe, data: PreparedData) -> str:
    # The cache keeps the order in which some recipe stored the splits; here training comes first.
    names = sorted(data.queries, key=lambda name: (name != recipe.train_name, name))
    splits = ", ".join(f"{name} {len(data.queries[name]):,}" for name in names)
    documents = f"{len(data.collection.documents):,}"
    length = recipe.encoder.tokenization.document.length_tokens
    if data.passages is not None:
        empty = f", {data.passages.empty:,} of them empty," if data.passages.empty else ""
        documents += f" in {len(data.documents):,} passages{empty}"
    mean = data.documents.lengths(length).mean()
    rows = []
    for name, stage in recipe.stages.items():
        drawn = stage.steps * stage.batch_queries // stage.repeats_per_query
        row: dict[str, Any] = {"stage": name, "init_from": str(stage.init_from), "steps": stage.steps}
        queries = len(data.rows_of_splits(stage.train_split))
        row |= {"drawn queries": drawn, "epochs": f"{drawn / queries:.1f}"}
        row |= {"refreshes": len(refresh_steps(stage)), "dev evaluations": len(evaluation_steps(stage))}
        rows.append({**row, "documents to encode": documents_encoded(stage, len(data.documents))})
    teachers = [
        f"teacher {name}, after {one.after}: {one.steps_over(len(data.split.queries)):,} steps of "
        f"{one.batch_queries} lists of a positive and {one.num_negatives} negatives"
        for name, one in recipe.teachers.items()
    ]
    lines = [
        f"documents: {documents} of {mean:.1f} tokens on average (at most {length}); queries: {splits}",
        _sizes(recipe, data),
        f"final evaluation: encodes all documents {evaluation_encodings(recipe)} times",
        *teachers,
        "",
        table_with_legend(rows, list(rows[0]), EPOCHS),
    ]
    if odd := data_warnings(recipe, data.collection):
        lines += ["", *(f"WARNING: {text}" for text in odd)]
    return "\n".join(lines)


def _sizes(recipe: Recipe, data: PreparedData) -> str:
    """A line with the sizes of the largest files of the run directory; how many there are is measured."""
    encoder = initial_encoder(recipe.encoder, recipe.seed)
    check_encoder(recipe, encoder)
    encoder.device = torch.device("meta")  # without memory
    encoder.towers.to(encoder.device)
    whole = sum(weight.nbytes for weight in encoder.towers.parameters())
    trained = []
    for name, stage in recipe.stages.items():
        copied = copy.deepcopy(encoder)
        if stage.lora is not None:
            copied.adapters = Adapters(stage.lora, stage.trainable, Path(), ("", ""))
        prepare_to_train(copied, stage, seed=0)
        weights = trained_weights(copied.towers) if stage.lora else dict(copied.towers.named_parameters())
        trained.append((name, stage.lora, sum(weight.nbytes for weight in weights.values())))
    largest = max([whole, *(size for _, lora, size in trained if lora is None)])
    bytes_of = {"adamw_8bit": 0.5}  # of both moments, for each byte of the weights
    moments = max(bytes_of.get(stage.optimizer.kind, 2) for stage in recipe.stages.values())
    sizes = {
        "vectors": len(data.documents) * encoder.dimension * 4,  # float32, a row for each passage
        "a checkpoint": largest,
        "its moments while its stage runs": moments * largest,
    }
    line = "sizes: " + ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in sizes.items())
    adapted = [f"; of adapters in stage {name} {size / MIB:.2f} MiB" for name, lora, size in trained if lora]
    return "".join([line, *adapted])


def refresh_steps(stage: Stage) -> set[int]:
    """The steps before which negatives are mined again."""
    return {step for step in range(stage.steps) if stage.refresh_is_due(step)}


def evaluation_steps(stage: Stage) -> set[int]:
    """The steps before which the dev measure is computed; `stage.steps` is the end of the stage."""
    return {step for step in range(stage.steps + 1) if stage.evaluation_is_due(step)}


def documents_encoded(stage: Stage, documents: int) -> int:
    """The number of documents that all refreshes and dev evaluations of a stage encode.

    An evaluation at the step of a refresh uses its vectors, with `when_ready` if it searches all documents.
    If only the query tower trains, all documents are encoded once, before the first step. A refresh that
    corrects vectors counts the share that it encodes.
    """
    if stage.trainable == "query_tower":
        return documents
    refreshes, encode = refresh_steps(stage), stage.effective_refresh.encode
    whole = refreshes & {0} if encode else refreshes
    share = encode.share if encode else 0.0
    sample = min(documents, (stage.evaluate and stage.evaluate.sample_documents) or documents)
    steps = evaluation_steps(stage)
    if sample == documents:
        between = steps - whole
    else:
        between = {step for step in steps if not stage.encodes_all_documents(step)}
    corrected = len(refreshes - whole) * round(share * documents)
    return len(whole) * documents + corrected + len(between) * sample


def evaluation_encodings(recipe: Recipe) -> int:
    """The number of times that the final evaluation encodes the collection: once for each row that the recipe
    wants, but for a stage that trains only the query tower, which has the documents of its start."""
    rows = recipe.final_evaluation.rows
    trained = sum(stage.trainable == "both" for stage in recipe.stages.values())
    before = ("untrained" in rows) + len(recipe.external_starts) * ("start" in rows)
    return max(1, before + (trained if "stages" in rows else 1))


def dry_run(recipe: Recipe, data: PreparedData, steps: int, world: World, scratch: Path | None = None) -> str:
    """Run `steps` steps of each stage from the untrained encoder, in a temporary run directory.

    The negatives of each stage are mined before its first step, in sync; dev is not measured. Returns a table
    of times, the memory and the total time. Called by all processes of `world`. scratch: that folder of the
    run to come, where the untrained encoder's vectors are, or are kept.
    """
    from pyserini_ance.pipeline.experiment import Experiment  # imports what a plan does not need

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
            encoder = initial_encoder(recipe.encoder, recipe.seed)
            return publish_checkpoint(experiment.run_dir, encoder, None, INITIAL).hashes

        untrained = Checkpoint(experiment.run_dir.checkpoint(INITIAL.stage, 0), *world.on_main(begin))
        is_encoded = False
        if scratch:
            scratch.mkdir(parents=True, exist_ok=True)
            experiment.run_dir.scratch.symlink_to(scratch.absolute())
            vectors = Snapshot.of(untrained, data, recipe, experiment.run_dir, world).vectors_folder
            is_encoded = vectors.exists()
            stack.enter_context(leased(vectors))  # else training removes them after their last step
        experiment.rank_by_bm25(data, {})
        for name in recipe.stages:
            experiment.train_teachers_after(name, data, experiment.train_stage(name, data, untrained))
        seconds = world.on_main(lambda: {name: experiment.log.seconds_spent(name) for name in recipe.stages})
        metrics = world.on_main(lambda: read_json_lines(experiment.run_dir.metrics))
        of_teachers = {one["teacher"]: one["seconds"] for one in metrics if one["event"] == "teacher"}
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
        # A refresh takes as long as the first mining, but for encoding that it was spared. A dev evaluation
        # between refreshes takes its share of encoding all documents, unless these stay as they were encoded
        # before the first step.
        refreshes, documents = len(refresh_steps(stage)), len(data.documents)
        more = documents_encoded(stage, documents) / documents
        if not is_encoded:
            more -= refreshes if stage.trainable == "both" else 1
        refreshing = measured["documents"] + measured["refresh"] * max(1, refreshes) + more * mining
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
