"""The plan: what a recipe will do and take, before anything is trained; with `dry_steps`, measured on this machine."""

from dataclasses import dataclass

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.experiment.dry_run import dry_run
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.experiment.schedule import encodings, evaluation_steps, refresh_steps, tables_mined
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.models import Recipe

GIB = 1 << 30


def plan(recipe: Recipe, dry_steps: int | None = None) -> str:
    """Read and check the data, then say steps, passages to encode, memory and disk; or run `dry_steps` and say times."""
    data = tokenise(recipe, read_collection(recipe))
    sizes = Sizes.of(recipe, data)
    parts = [sizes.describe(recipe, data), "", table(_stage_rows(recipe, data), STAGE_COLUMNS)]
    if dry_steps is not None:
        parts += ["", dry_run(recipe, data, dry_steps)]
    return "\n".join(parts)


@dataclass(frozen=True)
class Sizes:
    """Bytes of what a run holds and writes."""

    weights: int
    vectors: int
    tables: int

    @classmethod
    def of(cls, recipe: Recipe, data: PreparedData) -> "Sizes":
        encoder = start_encoder(recipe.encoder, recipe.seed)
        weights = sum(p.numel() * p.element_size() for p in encoder.towers.parameters())
        vectors = len(data.documents) * encoder.dimension * 4
        candidates = sum(
            getattr(source, "depth", 0) * tables_mined(stage)
            for stage in recipe.stages.values()
            for term in stage.terms.values()
            for source in term.negatives
        )
        return cls(weights, vectors, candidates * len(data.split.queries) * 8)

    def describe(self, recipe: Recipe, data: PreparedData) -> str:
        """Checkpoints hold weights and two moments; each stage keeps its best and, while it runs, the newest."""
        checkpoint = 3 * self.weights
        disk = checkpoint * (len(recipe.stages) + 2) + 2 * self.vectors + self.tables + self.weights
        memory = 4 * self.weights + self.weights + 2 * self.vectors
        splits = ", ".join(f"{name} {len(tokens):,}" for name, tokens in data.queries.items())
        length = recipe.encoder.tokenization.document.length_tokens
        mean = data.documents.lengths(length).mean()
        return "\n".join(
            [
                f"documents: {len(data.documents):,} of {mean:.1f} tokens on average (at most {length}); queries: {splits}",
                f"memory: about {memory / GIB:.2f} GiB for weights, gradients, moments and vectors, beside activations and libraries",
                f"disk: at most about {disk / GIB:.2f} GiB in the run directory ({self.tables / GIB:.2f} GiB of it negatives)",
            ]
        )


STAGE_COLUMNS = ["stage", "start", "steps", "queries drawn", "epochs", "refreshes", "dev evaluations", "documents to encode"]


def _stage_rows(recipe: Recipe, data: PreparedData) -> list[dict]:
    rows = []
    for name, stage in recipe.stages.items():
        drawn, documents = stage.steps * stage.batch_queries, len(data.documents)
        rows.append(
            {
                "stage": name,
                "start": stage.start,
                "steps": stage.steps,
                "queries drawn": drawn,
                "epochs": round(drawn / len(data.split.queries), 2),
                "refreshes": len(refresh_steps(stage)),
                "dev evaluations": len(evaluation_steps(stage)),
                "documents to encode": (encodings(stage) + 1) * documents,
            }
        )
    return rows
