"""Rows of `bench --gpu`: checks against the CPU, training steps, LTRe's steps."""

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.speed.gpu_bench import LARGE_BUDGET, PEER, Bench
from benchmarks.speed.gpu_inputs import LONGEST, SMALL, Model, stage_trainer, texts_of, training_data, vectors
from benchmarks.speed.gpu_retrieval import documents_that_fit, peer
from benchmarks.speed.training import SCALE, LastRound
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.objective import term_losses, weighted_sum
from pyserini_ance.trainer.trainer import StageTrainer
from pyserini_ance.vectors.search import search_arrays, searcher

LOSS = {"kind": "nll", "scale": 0.05}
LAMB = {"kind": "lamb", "learning_rate": 1e-6}
# Queries of a step, negatives of each, the stage's settings.
STEPS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "8 x (1+7)": (8, 7, {}),
    "64 x (1+1), LAMB": (64, 1, {"optimizer": LAMB}),
    "128 x (1+7) in-batch, GradCache": (128, 7, {"chunk_queries": 32}),
}
LTRE = {"trainable": "query_tower", "positives": "all", "batch_queries": 32}
# Wide weights: with the usual 0.02 all vectors of a random model are nearly the same.
WIDE = {"initializer_range": 0.5, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def step_stage(queries: int, negatives: int, **settings: Any) -> dict[str, Any]:
    """A stage of `queries` a step with random negatives, in-batch with `chunk_queries`."""
    in_batch = {"in_batch_negatives": "chunk_queries" in settings}
    term = {"negatives": [{"kind": "random", "num_negatives": negatives}], "loss": LOSS, **in_batch}
    return {"batch_queries": queries, "terms": {"query": term}, **settings}


def check(bench: Bench) -> None:
    """Search, gradients and vectors of the device beside those of the CPU."""
    model = Model.write(bench.folder / "wide", SMALL, **WIDE)
    data = training_data(model, SMALL.texts)
    bench.row("search finds what the CPU finds, ties by row", "ours", partial(_check_search, bench))
    for name in STEPS:
        measure = partial(_check_gradients, bench, model, data, name)
        bench.row(f"gradients of {name}", "ours", measure)
    for precision, bound in (("fp32", 0.99999), ("bf16", 0.98)):
        measure = partial(_check_vectors, bench, model, data, precision, bound)
        bench.row(f"vectors in {precision}", "ours", measure)


def _check_search(bench: Bench) -> dict[str, Any]:
    """Of whole numbers, whose products are exact in every order, and often equal."""
    rng = np.random.default_rng(0)
    documents, queries = (rng.integers(-3, 4, (count, 16)).astype(np.float32) for count in (20_000, 700))
    both = [
        search_arrays(searcher(documents, "torch", device, World(), documents_per_block=3000), queries, 50)
        for device in ("cpu", bench.device)
    ]
    different = sum(int((mine != theirs).sum()) for mine, theirs in zip(*both, strict=True))
    return {"measured": different, "bound": "0 differences", "agrees": different == 0}


def _check_gradients(bench: Bench, model: Model, data: PreparedData, name: str) -> dict[str, Any]:
    """The norm of the difference of a step's gradients, by the norm of the CPU's."""
    queries, negatives, settings = STEPS[name]
    found: list[torch.Tensor] = []
    for device in ("cpu", bench.device):
        folder = bench.folder / f"check-{name}-{len(found)}"
        stage = step_stage(queries, negatives, **settings)
        trainer = stage_trainer(model, data, folder, stage, device, "fp32")
        parameters = _gradients(trainer)
        found.append(torch.cat([each.detach().cpu().double().reshape(-1) for each in parameters]))
    distance = float((found[0] - found[1]).norm() / found[0].norm())
    return {"measured": distance, "bound": "1e-3 of the norm", "agrees": distance < 1e-3}


def _gradients(trainer: StageTrainer) -> list[torch.Tensor]:
    stage, anchor_sets = trainer.stage, trainer.anchor_sets
    batch = plan_batch(stage, trainer.number, 0, trainer.recipe.seed, anchor_sets, {})
    for chunk in trainer.batch_encoder.encode(batch, 0):
        losses = term_losses(stage.terms, chunk.batch, anchor_sets, chunk.vectors, chunk.passages)
        chunk.backward(weighted_sum(stage.terms, losses))
    return [each.grad for each in trainer.encoder.towers.parameters() if each.grad is not None]


def _check_vectors(
    bench: Bench, model: Model, data: PreparedData, precision: Any, bound: float
) -> dict[str, Any]:
    """The lowest cosine of a text's two vectors; the CPU's are of fp32."""
    rows = np.arange(len(data.documents))
    mine = _encoded(load_encoder(model.folder, bench.device), data, rows, precision)
    theirs = _encoded(load_encoder(model.folder), data, rows, "fp32")
    lowest = float(torch.cosine_similarity(mine, theirs).min())
    return {"measured": lowest, "bound": f"cosine {bound}", "agrees": lowest > bound}


def _encoded(encoder: Encoder, data: PreparedData, rows: np.ndarray, precision: Any) -> torch.Tensor:
    made = torch.empty(len(rows), encoder.dimension, dtype=torch.float64)
    for places, block in encoder.encode_rows(data.documents, rows, "document", precision, 512):
        made[torch.from_numpy(places)] = torch.as_tensor(block).double().cpu()
    return made


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


def train(bench: Bench) -> None:
    """Steps of the real trainer, beside those of sentence-transformers with the same texts."""
    data = training_data(bench.model, bench.sizes.texts)
    for name, (queries, negatives, settings) in STEPS.items():
        stage, flops = step_stage(queries, negatives, **settings), _flops(bench, data, queries, negatives)
        for budget in (None, LARGE_BUDGET):
            contender = "ours" if budget is None else f"ours, {budget:,} tokens at once"
            bench.row(name, contender, partial(_own_steps, bench, data, stage, budget, flops))
        cached = "chunk_queries" in settings
        measure = partial(_steps_by_peer, bench, data, queries, negatives, cached, flops)
        bench.row(name, PEER, measure, [PEER.replace("-", "_")])


def _flops(bench: Bench, data: PreparedData, queries: int, negatives: int) -> float:
    """Of a step: the forward pass, and backward twice that."""
    of_query, of_document = (
        bench.model.flops(tokens.lengths(LONGEST)) / len(tokens)
        for tokens in (data.queries["train"], data.documents)
    )
    return 3 * queries * (of_query + (1 + negatives) * of_document)


def _own_steps(
    bench: Bench, data: PreparedData, stage: dict[str, Any], budget: int | None, flops: float
) -> dict[str, Any]:
    seconds = _timed_steps(bench, data, stage, budget).seconds
    return {"ms": 1000 * seconds, **bench.rate(flops, seconds)}


def _timed_steps(
    bench: Bench,
    data: PreparedData,
    stage: Mapping[str, Any],
    budget: int | None = None,
    prepare: Callable[[StageTrainer], None] = lambda trainer: None,
) -> StepTimes:
    times = StepTimes(bench.sizes.steps, max(1.0, bench.left() / 4))
    folder = bench.folder / f"steps-{len(bench.rows)}"
    trainer = stage_trainer(bench.model, data, folder, stage, bench.device, "auto", budget, (times,))
    prepare(trainer)
    with suppress(LastRound):
        trainer.train()
    return times


def _steps_by_peer(
    bench: Bench, data: PreparedData, queries: int, negatives: int, cached: bool, flops: float
) -> dict[str, Any]:
    """The loss and the steps of sentence-transformers; it tokenizes in each step, as its trainer does."""
    from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss

    model = peer(bench, torch.float32).train()
    tokenize = getattr(model, "preprocess", None) or model.tokenize
    loss: Any = (
        CachedMultipleNegativesRankingLoss(model, scale=SCALE, mini_batch_size=32)
        if cached
        else MultipleNegativesRankingLoss(model, scale=SCALE)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    rng, sides = np.random.default_rng(0), (data.queries["train"], *[data.documents] * (1 + negatives))
    kind, in_bf16 = torch.device(bench.device).type, bench.precision == "bf16"

    def features(tokens: TokenStore) -> dict[str, Any]:
        made = tokenize(texts_of(tokens, rng.integers(len(tokens), size=queries)))
        return {key: each.to(bench.device) if hasattr(each, "to") else each for key, each in made.items()}

    def steps() -> None:
        for _ in range(count):
            with torch.autocast(kind, torch.bfloat16, enabled=in_bf16):
                loss([features(tokens) for tokens in sides], None).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    count = max(2, bench.sizes.steps // 4)
    seconds = bench.seconds(steps, 1) / count
    return {"ms": 1000 * seconds, **bench.rate(flops, seconds)}


def ltre(bench: Bench) -> None:
    """Steps of the query tower that search all documents; their vectors are random and on the device."""
    count = documents_that_fit(bench)
    bench.row(f"32 queries, 200 of {count:,}", "ours", partial(_ltre_steps, bench, count))


def _ltre_steps(bench: Bench, count: int) -> dict[str, Any]:
    whole = vectors(count, bench.sizes.shape["hidden_size"], bench.device, 1)

    def prepare(trainer: StageTrainer) -> None:
        """The stage has encoded a few documents; the others join them here."""
        assert trainer.documents is not None
        search = searcher(whole, "torch", bench.device, World())
        trainer.documents.whole = whole
        trainer.documents.searches = dict.fromkeys(trainer.documents.searches, search)

    live = {"query": {"negatives": [{"kind": "live", "top_k": 200}], "loss": {"kind": "lambdarank"}}}
    data = training_data(bench.model, min(1000, bench.sizes.texts))
    times = _timed_steps(bench, data, {**LTRE, "terms": live}, None, prepare)
    search = statistics.mean(times.search_seconds[times.warm :])
    return {"ms": 1000 * times.seconds, "ms of the search": 1000 * search}
