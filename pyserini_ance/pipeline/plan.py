"""Describe what a recipe will do before it runs: data, sizes, steps, encodings; with `--dry-steps`, times.

The counts are arithmetic on the recipe and the data. Time and memory are measured: see `dry_run.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyserini_ance.data.collection import PLURALS
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.negatives.mined import resolved_top_k
from pyserini_ance.pipeline.initial_weights import describe_initial_weights
from pyserini_ance.pipeline.preparation import prepare, stored_collection, tokenize
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.splits import TrainSplit
from pyserini_ance.recipe.stage import Stage

GIB = 1 << 30
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
    """Read and check the data, and describe sizes, steps and encodings."""
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
    # The cache keeps the order in which some recipe stored the splits; here training comes first.
    names = sorted(data.queries, key=lambda name: (name != recipe.train_split.name, name))
    splits = ", ".join(f"{name} {len(data.queries[name]):,}" for name in names)
    documents, length = (
        f"{len(data.collection.documents):,}",
        recipe.encoder.tokenization.document.length_tokens,
    )
    if data.passages is not None:
        empty = f", {data.passages.empty:,} of them empty," if data.passages.empty else ""
        documents += f" in {len(data.documents):,} passages{empty}"
    mean = data.documents.lengths(length).mean()
    rows = [_stage_row(name, stage, recipe.train_split, data) for name, stage in recipe.stages.items()]
    return "\n".join(
        [
            f"documents: {documents} of {mean:.1f} tokens on average (at most {length}); queries: {splits}",
            _sizes(recipe, data),
            f"final evaluation: encodes all documents {evaluation_encodings(recipe)} times",
            *_automatic_top_k(recipe, data),
            "",
            table_with_legend(rows, STAGE_COLUMNS, *STAGE_LEGEND),
            *_teachers(recipe, data),
            *_warnings(recipe, len(data.split.queries)),
        ]
    )


def _sizes(recipe: Recipe, data: PreparedData) -> str:
    """A line with the sizes of the largest files of the run directory; how many there are is measured."""
    encoder = initial_encoder(recipe.encoder, recipe.seed)
    if any(stage.trainable == "query_tower" for stage in recipe.stages.values()):
        encoder.untie()
    weights = sum(weight.nbytes for weight in encoder.towers.parameters())
    sizes = {
        "vectors": len(data.documents) * encoder.dimension * 4,  # float32, a row for each passage
        "a checkpoint": weights * recipe.encoder.weight_files,
        "its moments while its stage runs": 2 * weights,
    }
    return "sizes: " + ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in sizes.items())


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
            "steps": (steps := teacher.steps_over(len(data.split.queries))),
            "lists": steps * teacher.batch_queries,
            "negatives": teacher.num_negatives,
        }
        for name, teacher in recipe.teachers.items()
    ]
    return ["", table_with_legend(rows, list(rows[0]), *TEACHER_LEGEND)] if rows else []


def _automatic_top_k(recipe: Recipe, data: PreparedData) -> Iterator[str]:
    """A line with the number behind each `top_k: auto` of stages and teachers."""
    keyed = [
        (f"stages.{stage_name}.terms.{term_name}", term.anchor, term.negatives)
        for stage_name, stage in recipe.stages.items()
        for term_name, term in stage.terms.items()
    ]
    keyed += [(f"teachers.{name}", "query", teacher.negatives) for name, teacher in recipe.teachers.items()]
    for key, anchor, sources in keyed:
        anchor_set = data.anchor_sets[anchor]
        for position, source in enumerate(sources):
            if (top_k := resolved_top_k(source.components, anchor_set)) is not None:
                searched = f"{anchor_set.candidates:,} {PLURALS[anchor_set.candidate]}"
                yield f"{key}.negatives.{position}: top_k auto is {top_k}, for {searched}"


def _stage_row(name: str, stage: Stage, training: TrainSplit, data: PreparedData) -> dict[str, Any]:
    drawn = stage.steps * stage.batch_queries // stage.repeats_per_query
    epochs = f"{drawn / len(data.split.queries):.1f}"
    if training.sampling == "equal":  # an equal share of the draws for each split, whatever its size
        sizes = {split: len(data.collection.split(split).queries) for split in training.splits}
        epochs = ", ".join(f"{split} {drawn / len(sizes) / size:.1f}" for split, size in sizes.items())
    values = (
        name,
        str(stage.init_from),
        stage.steps,
        drawn,
        epochs,
        _mode(stage),
        len(refresh_steps(stage)),
        len(evaluation_steps(stage)),
        documents_encoded(stage, len(data.documents)),
        _learning_rate(stage),
    )
    return dict(zip(STAGE_COLUMNS, values, strict=True))


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


def refresh_steps(stage: Stage) -> set[int]:
    """The steps before which negatives are mined again."""
    return {step for step in range(stage.steps) if stage.refresh_is_due(step)}


def evaluation_steps(stage: Stage) -> set[int]:
    """The steps before which the dev measure is computed; `stage.steps` is the end of the stage."""
    return {step for step in range(stage.steps + 1) if stage.evaluation_is_due(step)}


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
    towers: dict[str, str] = {}  # the row whose document tower the result of a stage has
    before = "untrained"
    for name, stage in recipe.stages.items():
        start = "untrained" if stage.init_from == "initial" else before
        if stage.starts_from_checkpoint:
            start = next(row for row, one in recipe.external_starts.items() if one == stage.init_from)
        elif isinstance(stage.init_from, InitFrom):
            start = towers[stage.init_from.stage or ""]
        before = name if stage.trainable == "both" else start
        towers[name] = before
    rows = recipe.final_evaluation.rows
    wanted = {*towers.values()} if "stages" in rows else {before}
    wanted |= {"untrained"} & {*rows} | ({*recipe.external_starts} if "start" in rows else set())
    return len(wanted)
