"""Describe what a recipe will do before it runs: steps, encodings, memory and disk; with `--dry-steps`, also
times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyserini_ance.data.collection import PLURALS, Side
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.negatives.mined import resolved_top_k
from pyserini_ance.negatives.source import Source
from pyserini_ance.pipeline.cpu_memory import stage_lines
from pyserini_ance.pipeline.disk_sizes import (
    bm25_index_bytes,
    bm25_training_bytes,
    cache_bytes,
    factory_index_bytes,
    metrics_bytes,
    ranking_bytes,
)
from pyserini_ance.pipeline.forecast import (
    candidates_kept,
    checkpoints_at_once,
    documents_encoded,
    evaluation_encodings,
    evaluation_steps,
    moments_at_once,
    refresh_steps,
    vectors_at_once,
)
from pyserini_ance.pipeline.initial_weights import describe_initial_weights
from pyserini_ance.pipeline.memory_forecast import EncoderSizes, devices, encoder_sizes, step_memory
from pyserini_ance.pipeline.preparation import prepare, stored_collection, tokenize, tokenized_texts
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.splits import TrainSplit
from pyserini_ance.recipe.stage import Stage

MIB, GIB = 1 << 20, 1 << 30
STAGE_COLUMNS = [
    "stage",
    "init_from",
    "steps",
    "drawn queries",
    "epochs",
    "mode",
    "refreshes",
    "dev evaluations",
    "documents to encode",
    "learning rate",
]
STAGE_LEGEND = (
    "epochs: how many times each training query is drawn",
    "mode: sync, training waits for refreshes and evaluations; async, another process makes them, and "
    "training adopts them so many steps later",
)
TEACHER_LEGEND = (
    "teacher: a cross-encoder that is trained when the stage `after` has ended; its negatives are mined with "
    "that stage's result, which encodes all documents unless the next stage starts from it",
    "lists: of a positive and so many negatives",
)


def plan(recipe: Recipe) -> str:
    """Read and check the data, and describe steps, encodings, memory and disk."""
    return _describe(recipe, tokenize(recipe, stored_collection(recipe)))


def plan_of_chain(recipe: Recipe, before: Sequence[Recipe]) -> str:
    """The plans of the recipes that are trained `before` a recipe, in this order, its own, and their sum."""
    if not before:
        return plan(recipe)
    sections = [f"plan of {one.name}:\n{plan(one)}" for one in (*before, recipe)]
    stages = [stage for one in (*before, recipe) for stage in one.stages.values()]
    steps, queries = sum(stage.steps for stage in stages), sum(s.steps * s.batch_queries for s in stages)
    return "\n\n".join([*sections, f"all {len(sections)} runs: {steps:,} steps of {queries:,} queries"])


def measured_plan(recipe: Recipe, steps: int) -> str | None:
    """The plan with times, measured over `steps` steps of each stage on all processes that torchrun started.

    None on all processes but the main one.
    """
    from pyserini_ance.pipeline.dry_run import dry_run

    with World.join(recipe.device).session() as world:
        data = prepare(recipe, world)
        measured = dry_run(recipe, data, steps, world)
    if not world.is_main:
        return None
    return "\n".join([*describe_initial_weights(recipe), _describe(recipe, data), "", measured])


def _describe(recipe: Recipe, data: PreparedData) -> str:
    rows = [_stage_row(name, stage, recipe.train_split, data) for name, stage in recipe.stages.items()]
    encoder = encoder_sizes(recipe)
    sizes = DiskSizes.of(recipe, data, encoder).describe(recipe, data)
    memory = [
        line
        for device in devices(recipe)
        for line in (device == "cpu" and stage_lines(recipe, data, encoder))
        or [step_memory(recipe, data, encoder, device)]
    ]
    return "\n".join(
        [
            sizes,
            *memory,
            *_automatic_top_k(recipe, data),
            "",
            table_with_legend(rows, STAGE_COLUMNS, *STAGE_LEGEND),
            *_teachers(recipe, data),
            *_warnings(recipe, len(data.split.queries)),
        ]
    )


def _warnings(recipe: Recipe, training_queries: int) -> list[str]:
    """Lines on values that are allowed, but hardly meant: they have no effect, or repeat queries."""
    lines = []
    for name, stage in recipe.stages.items():
        if stage.refresh and stage.refresh.every_steps > stage.steps:
            lines.append(
                f"WARNING: stages.{name}.refresh.every_steps is {stage.refresh.every_steps:,}, but the stage "
                f"has {stage.steps:,} steps: its negatives are mined at its start and never refreshed"
            )
        if stage.batch_queries > training_queries:
            lines.append(
                f"WARNING: stages.{name}.batch_queries is {stage.batch_queries:,}, but there are "
                f"{training_queries:,} training queries: a batch has the same query more than once"
            )
    return ["", *lines] if lines else []


def _teachers(recipe: Recipe, data: PreparedData) -> list[str]:
    """A table of the cross-encoders that the run trains; nothing without any."""
    rows = [
        {
            "teacher": name,
            "after": teacher.after,
            "init_from": str(teacher.init_from),
            "steps": teacher.steps_over(len(data.split.queries)),
            "lists": teacher.steps_over(len(data.split.queries)) * teacher.batch_queries,
            "negatives": teacher.num_negatives,
        }
        for name, teacher in recipe.teachers.items()
    ]
    return ["", table_with_legend(rows, list(rows[0]), *TEACHER_LEGEND)] if rows else []


def _keyed_sources(recipe: Recipe) -> Iterator[tuple[str, Side, Source]]:
    """All sources of stages and teachers, with their keys and the side of their anchors."""
    for stage_name, stage in recipe.stages.items():
        for term_name, term in stage.terms.items():
            for position, source in enumerate(term.negatives):
                yield f"stages.{stage_name}.terms.{term_name}.negatives.{position}", term.anchor, source
    for name, teacher in recipe.teachers.items():
        for position, source in enumerate(teacher.negatives):
            yield f"teachers.{name}.negatives.{position}", "query", source


def _automatic_top_k(recipe: Recipe, data: PreparedData) -> list[str]:
    """A line with the number behind each `top_k: auto`."""
    lines = []
    for key, anchor, source in _keyed_sources(recipe):
        anchor_set = data.anchor_sets[anchor]
        if (top_k := resolved_top_k(source.components, anchor_set)) is not None:
            searched = f"{anchor_set.candidates:,} {PLURALS[anchor_set.candidate]}"
            lines.append(f"{key}: top_k auto is {top_k}, for {searched}")
    return lines


@dataclass(frozen=True)
class DiskSizes:
    """Sizes in bytes: weights in memory, weight files of a checkpoint, document vectors, indexes of Faiss
    factory strings, all tables of negatives, all rankings, and the ranks of positives in the metrics."""

    weights: int
    weight_files: int
    vectors: int
    indexes: int
    tables: int
    rankings: int
    metrics: int

    @classmethod
    def of(cls, recipe: Recipe, data: PreparedData, encoder: EncoderSizes) -> "DiskSizes":
        weights, dimension = encoder.weights, encoder.dimension
        return cls(
            weights=weights,
            weight_files=weights * recipe.encoder.weight_files,
            vectors=len(data.documents) * dimension * 4,  # a row for each passage
            indexes=factory_index_bytes(recipe, len(data.documents), dimension),
            tables=candidates_kept(recipe) * len(data.split.queries) * 8,
            rankings=ranking_bytes(recipe, data),
            metrics=metrics_bytes(recipe, data),
        )

    def describe(self, recipe: Recipe, data: PreparedData) -> str:
        """Lines on the data, vectors, disk and the final evaluation.

        A checkpoint holds weights, and until its stage is done two moments.
        """
        from pyserini_ance.pyserini_bridge.vector_files import ROWS_PER_BLOCK

        checkpoints, with_moments = checkpoints_at_once(recipe), moments_at_once(recipe)
        vectors, moments = vectors_at_once(recipe), 2 * self.weights
        disk = self.weight_files * (checkpoints + 2) + moments * with_moments
        # One is in training: its checkpoint has weights and two moments.
        teachers = self.weights * (len(recipe.teachers) + 3) if recipe.teachers else 0
        disk += teachers + self.vectors * vectors + self.indexes + self.tables + self.rankings + self.metrics
        bound = recipe.encoding.memory_gib
        block = ROWS_PER_BLOCK * self.vectors // max(1, len(data.documents))
        # The cache keeps the order in which some recipe stored the splits; here training comes first.
        names = sorted(data.queries, key=lambda name: (name != recipe.train_split.name, name))
        splits = ", ".join(f"{name} {len(data.queries[name]):,}" for name in names)
        length = recipe.encoder.tokenization.document.length_tokens
        mean = data.documents.lengths(length).mean()
        lines = [
            f"documents: {_document_count(data)} of {mean:.1f} tokens on average (at most {length}); "
            f"queries: {splits}",
            _truncation(recipe, data),
            f"vectors: {self.vectors / GIB:.2f} GiB, mapped from disk, and written to the index "
            f"{min(block, self.vectors) / MIB:.1f} MiB at a time"
            + (f"; searching them takes at most {bound:g} GiB" if bound else ""),
            f"disk: at most about {disk / GIB:.2f} GiB in the run directory: {checkpoints} checkpoints of "
            f"{self.weight_files / GIB:.2f}, {with_moments} of them with moments of {moments / GIB:.2f}, "
            f"{vectors} times the vectors of {self.vectors / GIB:.2f}"
            f"{f', compressed indexes {self.indexes / GIB:.2f}' if self.indexes else ''}, "
            f"{f'cross-encoders {teachers / GIB:.2f} (if as large), ' if teachers else ''}"
            f"negatives {self.tables / GIB:.2f}, rankings {self.rankings / GIB:.2f}, "
            f"metrics {self.metrics / GIB:.2f}",
            _cache(recipe, data),
            f"final evaluation: encodes all documents {evaluation_encodings(recipe)} times",
        ]
        return "\n".join(lines)


def _cache(recipe: Recipe, data: PreparedData) -> str:
    """The disk that the recipe takes in the cache, which runs share."""
    text = f"cache: {cache_bytes(recipe, data) / GIB:.2f} GiB of texts and tokens"
    if copied := bm25_training_bytes(recipe, data):
        text += f", {copied / GIB:.2f} of BM25's ranking of the training queries"
    index = bm25_index_bytes(recipe, data.collection.documents)
    return f"{text}, at most {index / GIB:.2f} of BM25's index" if index else text


def _truncation(recipe: Recipe, data: PreparedData) -> str:
    tokenized = tokenized_texts(recipe, data.collection)
    documents = tokenized.pop("documents").truncation.describe("documents")
    queries = [
        f"{name} {texts.truncation.share}, median {texts.truncation.median_tokens}"
        for name, texts in tokenized.items()
    ]
    limit = recipe.encoder.tokenization.query.length_tokens
    return f"length: {documents}; of the queries, at {limit} tokens: {'; '.join(queries)}"


def _document_count(data: PreparedData) -> str:
    documents = f"{len(data.collection.documents):,}"
    if data.passages is None:
        return documents
    empty = f", {data.passages.empty:,} of them empty," if data.passages.empty else ""
    return f"{documents} in {len(data.documents):,} passages{empty}"


def _stage_row(name: str, stage: Stage, training: TrainSplit, data: PreparedData) -> dict[str, Any]:
    drawn = stage.steps * stage.batch_queries // stage.repeats_per_query
    values = (
        name,
        str(stage.init_from),
        stage.steps,
        drawn,
        _epochs(drawn, training, data),
        _mode(stage),
        len(refresh_steps(stage)),
        len(evaluation_steps(stage)),
        documents_encoded(stage, len(data.documents)),
        _learning_rate(stage),
    )
    return dict(zip(STAGE_COLUMNS, values, strict=True))


def _epochs(drawn: int, training: TrainSplit, data: PreparedData) -> str:
    """The number of times that every query is drawn; with `sampling: equal`, one number per split."""
    if training.sampling == "proportional":
        return f"{drawn / len(data.split.queries):.1f}"
    share = drawn / len(training.splits)
    epochs = {name: share / len(data.collection.split(name).queries) for name in training.splits}
    return ", ".join(f"{name} {count:.1f}" for name, count in epochs.items())


def _mode(stage: Stage) -> str:
    """How the products of checkpoints are made and adopted: `sync`, or `async` with the step of their
    adoption."""
    product = stage.refresh or stage.effective_evaluate
    if product is None or product.mode == "sync":
        return "sync"
    return "async, when_ready" if product.lag_steps is None else f"async, +{product.lag_steps}"


def _learning_rate(stage: Stage) -> str:
    """The optimizer, its learning rate and schedule: see trainer/optim.py."""
    optimizer, schedule = stage.optimizer, stage.lr_schedule
    phrases = [
        f"{optimizer.kind} {optimizer.learning_rate:g}",
        f"warm-up {schedule.warmup_steps:,}" if schedule.warmup_steps else "",
        "constant" if schedule.kind == "constant" else f"{schedule.kind} to 0 at {stage.horizon_steps:,}",
        f"from {schedule.offset_steps:,} on" if schedule.offset_steps else "",
    ]
    return ", ".join(filter(None, phrases))
