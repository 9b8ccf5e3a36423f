"""The parts `train` and `ltre` of the benchmarks of a GPU: optimizer steps."""

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.speed.gpu_inputs import (
    LARGE_BUDGET,
    LONGEST,
    PEER,
    Bench,
    Model,
    documents_that_fit,
    passage_lengths,
    peer_model,
    texts_of,
)
from benchmarks.speed.searching import vectors
from benchmarks.speed.training import LastRound
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.trainer import StageTrainer
from pyserini_ance.vectors.search import searcher

# Queries of a step, negatives of each, the stage's settings.
STEPS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "8 x (1+7)": (8, 7, {}),
    "64 x (1+1), LAMB": (64, 1, {"optimizer": {"kind": "lamb", "learning_rate": 1e-6}}),
    "128 x (1+7) in-batch, GradCache": (128, 7, {"chunk_queries": 32}),
}
LTRE = {"trainable": "query_tower", "positives": "all", "batch_queries": 32}
LIVE = {"negatives": [{"kind": "live", "top_k": 200}], "loss": {"kind": "lambdarank"}}


class StepTimes(TrainerCallback):
    """Notes when each step's numbers arrive; leaves after `steps` steps, or `seconds` and a few steps."""

    def __init__(self, steps: int, seconds: float):
        self.steps, self.end = steps, time.perf_counter() + seconds
        self.times: list[float] = []
        self.search_seconds: list[float] = []

    def on_step_end(self, stage: str, step: int, losses: dict[str, float], metrics: dict[str, Any]) -> None:
        self.times.append(time.perf_counter())
        self.search_seconds.append(metrics.get("search_seconds", 0.0))
        if len(self.times) >= self.steps or (len(self.times) > 4 and time.perf_counter() > self.end):
            raise LastRound

    @property
    def warm(self) -> int:
        """The steps that do not count."""
        return max(1, len(self.times) // 5)

    @property
    def seconds(self) -> float:
        """The mean of a step."""
        return (self.times[-1] - self.times[self.warm - 1]) / (len(self.times) - self.warm)


def training_data(model: Model, texts: int) -> PreparedData:
    """`texts` documents of passages' lengths, and a query of 8 to 16 tokens for every other one."""
    rng, queries, ids = np.random.default_rng(1), texts // 2, [str(row) for row in range(texts)]
    qrels = Qrels.of(np.arange(queries), rng.permutation(texts)[:queries], [1] * queries, queries)
    train = Split("train", Texts(ids[:queries], {"text": ids[:queries]}), qrels)
    collection = Collection(Texts(ids, {"text": ids}), {"train": train})
    documents = model.tokens(passage_lengths(texts, model.sizes.longest))
    asked = model.tokens(rng.integers(8, 17, queries), seed=1)
    return PreparedData(collection, documents, {"train": asked}, "train", "random")


def train(bench: Bench) -> None:
    """Steps of the real trainer, beside those of sentence-transformers with the same texts."""
    data = training_data(bench.model, bench.sizes.texts)
    for name, (queries, negatives, _) in STEPS.items():
        of_query, of_document = (
            bench.model.flops(tokens.lengths(LONGEST)) / len(tokens)
            for tokens in (data.queries["train"], data.documents)
        )
        # The backward pass takes twice the forward pass.
        flops = 3 * queries * (of_query + (1 + negatives) * of_document)
        for budget in (None, LARGE_BUDGET):
            contender = "ours" if budget is None else f"ours, {budget:,} tokens at once"
            bench.row(name, contender, partial(_own_steps, bench, data, name, budget, flops))
        bench.row(name, PEER, partial(_steps_by_peer, bench, data, name, flops), "sentence_transformers")


def _own_steps(
    bench: Bench, data: PreparedData, name: str, budget: int | None, flops: float
) -> dict[str, Any]:
    """Steps of a row of STEPS; with in-batch negatives if it has `chunk_queries`."""
    queries, negatives, settings = STEPS[name]
    term = {
        "negatives": [{"kind": "random", "num_negatives": negatives}],
        "loss": {"kind": "nll", "scale": 0.05},
        "in_batch_negatives": "chunk_queries" in settings,
    }
    stage = {"batch_queries": queries, "terms": {"query": term}, **settings}
    return bench.figures(flops, _timed_steps(bench, data, stage, budget).seconds)


def _timed_steps(
    bench: Bench,
    data: PreparedData,
    stage: Mapping[str, Any],
    budget: int | None = None,
    prepare: Callable[[StageTrainer], None] = lambda trainer: None,
) -> StepTimes:
    """Train a stage over `data`, as `train` does, until the steps or the seconds are over."""
    times = StepTimes(bench.sizes.steps, max(1.0, bench.left() / 4))
    settings = {
        "name": "bench",
        "data": {"kind": "docstrings"},  # never read: `data` takes its place
        "encoder": bench.model.recipe,
        "encoding": {"search": "torch", "tokens_per_batch": budget},
        "bm25": None,
        # More steps than any benchmark takes.
        "stages": {"bench": {"steps": 10_000, "optimizer": {"learning_rate": 1e-5}, **stage}},
        "device": torch.device(bench.device).type,
    }
    recipe, world = Recipe.model_validate(settings), World(device=bench.device)
    run = RunDir(bench.folder / f"steps-{len(bench.rows)}")
    run.folder.mkdir(parents=True)
    executor, start = SyncExecutor(Refresher(recipe, data, run, world).make), bench.model.checkpoint
    trainer = StageTrainer(recipe, "bench", data, run, world, lambda _: executor, start, callbacks=(times,))
    prepare(trainer)
    with suppress(LastRound):
        trainer.train()
    return times


def _steps_by_peer(bench: Bench, data: PreparedData, name: str, flops: float) -> dict[str, Any]:
    """The loss and the steps of sentence-transformers; it tokenizes in each step, as its trainer does."""
    from sentence_transformers.sentence_transformer import losses

    queries, negatives, settings = STEPS[name]
    model: Any = peer_model(bench, "fp32").train()
    tokenize = getattr(model, "preprocess", None) or model.tokenize
    loss: Any = losses.MultipleNegativesRankingLoss(model)
    if "chunk_queries" in settings:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=settings["chunk_queries"])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    rng = np.random.default_rng(0)
    sides = (data.queries["train"], *[data.documents] * (1 + negatives))
    kind = torch.device(bench.device).type
    in_bf16 = bench.precision == "bf16"

    def features(tokens: TokenStore) -> dict[str, Any]:
        made = tokenize(texts_of(tokens, rng.integers(len(tokens), size=queries)))
        return {key: each.to(bench.device) if hasattr(each, "to") else each for key, each in made.items()}

    def step() -> None:
        with torch.autocast(kind, torch.bfloat16, enabled=in_bf16):
            loss([features(tokens) for tokens in sides], None).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return bench.figures(flops, bench.seconds(step, max(2, bench.sizes.steps // 4)))


def ltre(bench: Bench) -> None:
    """Steps of the query tower that search all documents; their vectors are random and on the device."""
    count = documents_that_fit(bench)
    bench.row(f"32 queries, 200 of {count:,}", "ours", partial(_ltre_steps, bench, count))


def _ltre_steps(bench: Bench, count: int) -> dict[str, Any]:
    whole = vectors(count, bench.model.dimension, bench.device, 1)

    def prepare(trainer: StageTrainer) -> None:
        """The stage has encoded a few documents; the others join them here."""
        assert trainer.documents is not None
        search = searcher(whole, "torch", bench.device, World())
        trainer.documents.whole = whole
        trainer.documents.searches = dict.fromkeys(trainer.documents.searches, search)

    data = training_data(bench.model, min(1000, bench.sizes.texts))
    times = _timed_steps(bench, data, {**LTRE, "terms": {"query": LIVE}}, None, prepare)
    search_ms = 1000 * statistics.mean(times.search_seconds[times.warm :])
    return {"ms": 1000 * times.seconds, "ms of the search": search_ms}
