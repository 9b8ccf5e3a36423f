"""The plan: what a recipe will do and take, before anything is trained; with `dry_steps`, measured on this machine."""

from dataclasses import dataclass

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.experiment.dry_run import dry_run
from pyserini_ance.experiment.prepare import prepare, stored_collection, tokenise
from pyserini_ance.experiment.schedule import (
    candidates_kept,
    checkpoints_at_once,
    closing_encodings,
    documents_encoded,
    evaluation_steps,
    refresh_steps,
    vectors_at_once,
)
from pyserini_ance.experiment.starts import describe_starts
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.splits import TrainSplit
from pyserini_ance.recipe.stage import Stage

GIB = 1 << 30


def plan(recipe: Recipe) -> str:
    """Read and check the data, then say steps, passages to encode, memory and disk."""
    return _describe(recipe, tokenise(recipe, stored_collection(recipe)))


def measured_plan(recipe: Recipe, steps: int) -> str | None:
    """The plan, and from `steps` steps of each stage, with all processes that torchrun started, times; on the first of them."""
    with World.join(recipe.device).guarding() as world:
        data = prepare(recipe, world)
        measured = dry_run(recipe, data, steps, world)
    return "\n".join([*describe_starts(recipe), _describe(recipe, data), "", measured]) if world.is_main else None


def _describe(recipe: Recipe, data: PreparedData) -> str:
    rows = [_stage_row(name, stage, recipe.train_split, data) for name, stage in recipe.stages.items()]
    return "\n".join([Sizes.of(recipe, data).describe(recipe, data), "", table(rows, STAGE_COLUMNS)])


@dataclass(frozen=True)
class Sizes:
    """Bytes: weights in memory, weight files of a checkpoint, one side's vectors, and all tables of negatives."""

    weights: int
    weight_files: int
    vectors: int
    tables: int

    @classmethod
    def of(cls, recipe: Recipe, data: PreparedData) -> "Sizes":
        encoder = start_encoder(recipe.encoder, recipe.seed)
        if any(stage.train == "queries" for stage in recipe.stages.values()):
            encoder.untie()
        weights = sum(p.numel() * p.element_size() for p in encoder.towers.parameters())
        vectors = len(data.documents) * encoder.dimension * 4  # a row for each passage
        return cls(weights, weights * recipe.encoder.weight_files, vectors, candidates_kept(recipe) * len(data.split.queries) * 8)

    def describe(self, recipe: Recipe, data: PreparedData) -> str:
        """A checkpoint holds weights and two moments."""
        checkpoint = self.weight_files + 2 * self.weights
        disk = checkpoint * checkpoints_at_once(recipe) + 2 * self.weight_files + self.vectors * vectors_at_once(recipe) + self.tables
        memory = 5 * self.weights + 2 * self.vectors
        splits = ", ".join(f"{name} {len(tokens):,}" for name, tokens in data.queries.items())
        length = recipe.encoder.tokenization.document.length_tokens
        mean = data.documents.lengths(length).mean()
        return "\n".join(
            [
                f"documents: {_counted(data)} of {mean:.1f} tokens on average (at most {length}); queries: {splits}",
                f"memory: about {memory / GIB:.2f} GiB for weights, gradients, moments and vectors, beside activations and libraries",
                f"disk: at most about {disk / GIB:.2f} GiB in the run directory: {checkpoints_at_once(recipe)} checkpoints of "
                f"{checkpoint / GIB:.2f}, {vectors_at_once(recipe)} times the vectors of {self.vectors / GIB:.2f}, negatives {self.tables / GIB:.2f}",
                f"closing table: encodes all documents {closing_encodings(recipe)} times",
            ]
        )


def _counted(data: PreparedData) -> str:
    documents = f"{len(data.collection.documents):,}"
    if data.passages is None:
        return documents
    empty = f", {data.passages.empty:,} of them empty," if data.passages.empty else ""
    return f"{documents} in {len(data.documents):,} passages{empty}"


STAGE_COLUMNS = [
    "stage", "start", "steps", "queries drawn", "epochs", "run", "refreshes", "dev evaluations", "documents to encode", "learning rate"
]  # fmt: skip


def _stage_row(name: str, stage: Stage, training: TrainSplit, data: PreparedData) -> dict:
    drawn = stage.steps * stage.batch_queries // stage.in_a_row
    counts = (_run(stage), len(refresh_steps(stage)), len(evaluation_steps(stage)), documents_encoded(stage, len(data.documents)))
    return dict(zip(STAGE_COLUMNS, (name, str(stage.start), stage.steps, drawn, _epochs(drawn, training, data), *counts, _rate(stage)), strict=True))


def _epochs(drawn: int, training: TrainSplit, data: PreparedData) -> str:
    """How often all queries are drawn; with mixing: even, those of each split."""
    if training.mixing == "concatenated":
        return f"{drawn / len(data.split.queries):.1f}"
    share = drawn / len(training.splits)
    return ", ".join(f"{name} {share / len(data.collection.split(name).queries):.1f}" for name in training.splits)


def _run(stage: Stage) -> str:
    """How what is made of checkpoints comes back: inline, or from a refresher, and when."""
    product = stage.refresh or stage.measuring
    if product is None or product.run == "inline":
        return "inline"
    return "background, ready" if product.lag_steps is None else f"background, +{product.lag_steps}"


def _rate(stage: Stage) -> str:
    """The optimiser, its learning rate, and how this changes: see trainer/optim.py."""
    settings = stage.optimizer
    parts = [
        f"{settings.kind} {settings.learning_rate:g}",
        settings.warmup_steps and f"warm-up {settings.warmup_steps:,}",
        "constant" if settings.decay == "constant" else f"{settings.decay} to 0 at {stage.horizon_steps:,}",
        stage.schedule_cycle_steps and f"anew every {stage.schedule_cycle_steps:,}",
        stage.schedule_offset_steps and f"from {stage.schedule_offset_steps:,} on",
    ]
    return ", ".join(part for part in parts if part)
