"""A step against its definition: each text alone, losses by loops, clipping and AdamW by formula."""

import json
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from helpers import run_failures
from helpers.step_gradients import compute_gradients, gradients_of, vector_alone

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder, save_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.models import Encoding
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer import trainer
from pyserini_ance.trainer.batch import TermRows, plan_batch
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.step import BatchEncoder
from pyserini_ance.trainer.trainer import StageTrainer

RATE, EPS, DECAY, BETAS, LARGEST_NORM = 0.01, 1e-3, 0.1, (0.9, 0.999), 0.5
OPTIMIZER = {"learning_rate": RATE, "weight_decay": DECAY, "max_grad_norm": LARGEST_NORM}
LOSS = {"kind": "nll", "scale": 0.2}
TERMS = {
    "own": {"negatives": [{"kind": "random", "num_negatives": 2}], "loss": {"kind": "nll", "scale": 0.5}},
    "step": {"in_batch_negatives": True, "negatives": [{"kind": "random"}], "loss": LOSS, "weight": 0.5},
}
AT_ONCE = [("own", [2, 2, 2], [2, 1]), ("step", [2, 2, 2] * 2, [2, 1] * 2)]


@pytest.fixture(autouse=True)
def large_eps(monkeypatch):
    monkeypatch.setattr(trainer, "build_optimizer", trainer.build_optimizer)  # restored after the test
    run_failures.large_eps("", 0)


@pytest.fixture(scope="module")
def made(small_recipe, tiny_bert):
    """A recipe of two steps, and its data."""
    stage = {"steps": 2, "batch_queries": 6, "positives": "all", "terms": TERMS, "optimizer": OPTIMIZER}
    lengths = {"query": {"length_tokens": 24}, "document": {"length_tokens": 32, "template": "{text}"}}
    encoder = {"model": str(tiny_bert), "pooling": "mean", "tokenization": lengths, "dropout": 0.0}
    recipe = small_recipe({"a": stage}, encoder=encoder, seed=3)
    return recipe, tokenize(recipe, read_collection(recipe))


def reference_step(model, moments: dict, number: int, batch, data) -> tuple[dict[str, float], float]:
    """Change `model` and `moments` by one step; the loss of each term and the norm before clipping."""
    qrels, rate = data.split.qrels, RATE * (3 - number) / 2  # linear decay over two steps
    query = {int(row): vector_alone(model, data.queries["train"], row, 24) for row in batch.queries}
    rows = batch.unique["document"].tolist()
    document = {row: vector_alone(model, data.documents, row, 32) for row in rows}
    losses = {}
    for name, term in TERMS.items():
        scale, each = term["loss"]["scale"], []
        for i, q in enumerate(batch.queries.tolist()):
            known, rows = {-1, *qrels.relevant(q).tolist()}, batch.terms[name]
            pool = rows.negatives[i] if name == "own" else np.concatenate([rows.positives, rows.negatives], 1)
            score = {row: torch.exp(scale * query[q] @ vector) for row, vector in document.items()}
            negatives = sum(score[d] for d in pool.ravel().tolist() if d not in known)
            of_positives = [score[p] for p in rows.positives[i].tolist() if p != -1]
            each.append(sum(-torch.log(p / (p + negatives)) for p in of_positives) / len(of_positives))
        losses[name] = sum(each) / len(each)
    model.zero_grad()
    sum(TERMS[name].get("weight", 1.0) * loss for name, loss in losses.items()).backward()
    parameters = {name: p for name, p in model.named_parameters() if p.grad is not None}
    norm = math.sqrt(sum(float(p.grad.pow(2).sum()) for p in parameters.values()))
    for name, p in parameters.items():
        gradient = p.grad * min(1.0, LARGEST_NORM / norm)
        first, second = moments.get(name, (torch.zeros_like(p), torch.zeros_like(p)))
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        moments[name] = first, second
        corrected = first / (1 - BETAS[0] ** number), second / (1 - BETAS[1] ** number)
        with torch.no_grad():
            p -= rate * DECAY * p * (p.ndim > 1) + rate * corrected[0] / (corrected[1].sqrt() + EPS)
    return {name: loss.item() for name, loss in losses.items()}, norm


@pytest.mark.parametrize("chunk_queries", [None, 4])
def test_two_steps_equal_a_written_out_reference(made, tmp_path, chunk_queries):
    recipe, data = made
    stage = recipe.stages["a"].model_copy(update={"chunk_queries": chunk_queries})
    recipe = recipe.model_copy(update={"stages": {"a": stage}})
    run = RunDir(tmp_path)
    start = publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, TrainingProgress("initial", 0))
    result = StageTrainer(recipe, "a", data, run, World(), lambda product: SyncExecutor(None), start).train()

    model, moments = load_encoder(start.encoder).towers.queries.transformer, {}
    logged = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    for step in range(2):
        batch = plan_batch(stage, 0, step, 3, data.anchor_sets, {})
        losses, norm = reference_step(model, moments, step + 1, batch, data)
        assert logged[step]["terms"] == pytest.approx(losses, rel=1e-4)
        assert logged[step]["loss"] == pytest.approx(losses["own"] + 0.5 * losses["step"], rel=1e-4)
        assert logged[step]["grad_norm"] == pytest.approx(norm, rel=1e-4) and norm > LARGEST_NORM
    towers = (load_encoder(one.encoder).towers for one in (result, start))
    trained, before = (one.queries.transformer.state_dict() for one in towers)
    torch.testing.assert_close(trained, model.state_dict(), rtol=1e-4, atol=2e-5)  # far below a step
    assert max(float((trained[name] - before[name]).abs().max()) for name in before) > RATE


def step_in_world(world, recipe, changes: dict, tokens: int = 128) -> tuple[dict, dict, list[int]]:
    """Losses and gradients of the first step, without dropout, and the queries that were encoded at once."""
    stage, data = recipe.stages["a"].model_copy(update=changes), tokenize(recipe, read_collection(recipe))
    encoder, seen = initial_encoder(recipe.encoder, 0), []
    encoder.towers.register_forward_hook(lambda towers, given, vectors: seen.append((given[0], len(vectors))))
    runner = BatchEncoder(stage, data, encoder, nullcontext, tokens, (3, 0), world)
    losses = compute_gradients(runner, plan_batch(stage, 0, 0, 3, data.anchor_sets, {}), 0)
    gradients = gradients_of(encoder.towers.queries.transformer)
    return losses, gradients, [count for side, count in seen if side == "query"]


def assert_whole(step: tuple[dict, dict, list[int]], recipe, changes: dict) -> None:
    """A step's losses and gradients are those of one process in one go."""
    expected, whole, _ = step_in_world(World(), recipe, {**changes, "chunk_queries": None}, 1000)
    assert step[0] == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(step[1], whole, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("tokens", [200, 100, 1])
def test_chunks_of_tokens_add_up_to_the_whole_step(made, tokens):
    recipe, changes = made[0], {"terms": {"own": made[0].stages["a"].terms["own"]}}
    assert_whole(step_in_world(World(), recipe, changes, tokens), recipe, changes)


@pytest.mark.parametrize(("pool", "chunk_queries"), [(pool, size) for pool in TERMS for size in (None, 1)])
def test_one_query_and_three_documents_on_five_processes_add_up_too(made, run_processes, pool, chunk_queries):
    """Some have no text."""
    recipe, terms = made[0], {pool: made[0].stages["a"].terms[pool]}
    changes = {"batch_queries": 1, "chunk_queries": chunk_queries, "terms": terms}
    for step in run_processes(5, step_in_world, recipe, changes):
        assert_whole(step, recipe, changes)


@pytest.mark.parametrize("pool, once, twice", AT_ONCE)
def test_chunk_queries_bounds_what_each_process_encodes_at_once(made, run_processes, pool, once, twice):
    recipe = made[0]
    changes = {"chunk_queries": 2, "terms": {pool: recipe.stages["a"].terms[pool]}}
    assert step_in_world(World(), recipe, changes, 512)[2] == once
    assert [step[2] for step in run_processes(2, step_in_world, recipe, changes, 512)] == [twice, twice]


@pytest.mark.parametrize("around", ["per_passage", "per_document"])
@pytest.mark.parametrize("empty", [False, True])
def test_a_step_scores_as_a_search_without_empty_passages(small_recipe, tiny_bert, tmp_path, around, empty):
    """In both directions. Where empty passages are indexed, the two differ, and by nothing else."""
    document = {"length_tokens": 10, "passages": 3, "template": "{text}"}
    document |= {"special_tokens": around, "pad_passages": empty}
    tokenization = {"query": {"length_tokens": 24}, "document": document}
    encoder = {"model": str(tiny_bert), "tokenization": tokenization, "dropout": 0.0}
    term = {"negatives": [{"kind": "random", "num_negatives": 2}], "loss": {"kind": "nll", "scale": 0.2}}
    terms = {"query": term, "document": {**term, "anchor": "document"}}
    settings = {"steps": 1, "batch_queries": 6, "terms": terms, "optimizer": OPTIMIZER}
    recipe = small_recipe({"a": settings}, encoder=encoder)
    data, stage = tokenize(recipe, read_collection(recipe)), recipe.stages["a"]
    towers = initial_encoder(recipe.encoder, 0)
    batch = plan_batch(stage, 0, 0, 3, data.anchor_sets, {})
    encoder = BatchEncoder(stage, data, towers, nullcontext, 128, (3, 0), World())
    losses = compute_gradients(encoder, batch, 0)

    (model := tmp_path / "model").mkdir()
    save_encoder(towers, model)
    encoding = Encoding(precision="fp32")
    snapshot = Snapshot(model, "hash", data, encoding, tmp_path / "scratch", "cpu", World())
    ranked, found = snapshot.search("query", np.arange(15), "document", 30)
    searched, trained = np.empty((15, 30), np.float32), np.empty((15, 30), np.float32)
    np.put_along_axis(searched, found, ranked, 1)
    of_empty = np.full((15, 30), -np.inf)
    for row, (start, stop) in enumerate(zip(data.passages.offsets, data.passages.offsets[1:], strict=False)):
        texts = stop if not empty else start + data.passages.filled[row]
        each = snapshot.query_vectors @ snapshot.document_vectors[start:stop].T
        trained[:, row] = each[:, : texts - start].max(1)
        of_empty[:, row] = each[:, texts - start :].max(1, initial=-np.inf)
    np.testing.assert_allclose(searched, np.maximum(trained, of_empty), atol=1e-4)

    def slow(scores: np.ndarray, rows: TermRows) -> float:
        scores = scores if rows.anchor == "query" else scores.T
        drawn = np.concatenate([rows.positives, rows.negatives], axis=1)
        each = 0.2 * scores[rows.anchors[:, None], drawn]
        return float(np.log(np.exp(each - each[:, :1]).sum(1)).mean())

    of_training = {name: slow(trained, rows) for name, rows in batch.terms.items()}
    assert losses == pytest.approx(of_training, rel=1e-4)
    of_search = {name: slow(searched, rows) for name, rows in batch.terms.items()}
    assert (losses == pytest.approx(of_search, rel=1e-4)) == (not empty)
