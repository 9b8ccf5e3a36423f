"""A GPU computes what the CPU does: steps, vectors, searches, runs; it adds in another order."""

import json

import numpy as np
import pytest
import torch
from helpers.run_outcome import outcome
from helpers.stage_fixture import Training
from helpers.stages import recipe_file
from helpers.step_gradients import compute_gradients

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.vectors.search import search_arrays, searcher

pytestmark = pytest.mark.cuda

LOSS = {"kind": "nll", "scale": 0.1}
OWN = {"query": {"negatives": [{"kind": "random", "num_negatives": 3}], "loss": LOSS}}
IN_BATCH = {"query": {**OWN["query"], "in_batch_negatives": True}}
LIVE = {"query": {"negatives": [{"kind": "live", "top_k": 6}], "loss": {"kind": "lambdarank"}}}
HARDEST = {"query": {**OWN["query"], "false_negative_margin": 0.1, "num_hardest": 1}}
DUAL = {**OWN, "document": {**OWN["query"], "anchor": "document"}}
MINED = {"query": {"negatives": [{"kind": "ann", "top_k": 8}], "loss": LOSS}}
PASSAGES = {"length_tokens": 10, "passages": 3, "template": "{text}"}
# Terms, settings of the stage, settings of the encoder.
STEPS = {
    "own pool": (OWN, {}, {}),
    "step pool": (IN_BATCH, {}, {}),
    "two towers": (IN_BATCH, {}, {"tied": False}),
    "passages": (DUAL, {}, {"document": PASSAGES}),
    "accumulated": (OWN, {"chunk_queries": 2}, {}),
    "GradCache": (IN_BATCH, {"chunk_queries": 2}, {}),
    "LambdaRank": ({"query": {**OWN["query"], "loss": {"kind": "lambdarank"}}}, {"positives": "all"}, {}),
    "hardest": (HARDEST, {}, {}),
}
STAGE = {"steps": 24, "batch_queries": 4, "optimizer": {"learning_rate": 1e-5}, "terms": MINED}
REFRESH = {"every_steps": 8}
BACKGROUND = {**REFRESH, "mode": "async", "adopt": 8}


def settings_of(model, tied: bool = True, document: dict | None = None) -> dict:
    """An encoder's, without dropout, which every device draws in its own way."""
    document = document or {"length_tokens": 32, "template": "{text}"}
    tokenization = {"query": {"length_tokens": 24}, "document": document}
    config = {"model": str(model), "pooling": "mean", "tokenization": tokenization}
    return {**config, "tied": tied, "dropout": 0.0}


@pytest.mark.parametrize("case", STEPS)
def test_losses_and_gradients_of_a_step_are_those_of_the_cpu(device, small_recipe, tiny_bert, tmp_path, case):
    terms, stage, encoder = STEPS[case]
    losses, gradients = [], []
    for number, each in enumerate(("cpu", device)):
        settings = settings_of(tiny_bert, **encoder)
        made = Training(small_recipe, tmp_path / str(number), terms, each, settings, **stage).stage()
        assert {p.device.type for p in made.encoder.towers.parameters()} == {torch.device(each).type}
        batch = plan_batch(made.stage, 0, 0, 3, made.data.anchor_sets, {})
        losses.append(compute_gradients(made.batch_encoder, batch, 0))
        named = made.encoder.towers.named_parameters()
        gradients.append({name: p.grad.cpu() for name, p in named if p.grad is not None})
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert gradients[1].keys() == gradients[0].keys()
    cpu, gpu_ = (torch.cat([g.double().reshape(-1) for g in of.values()]) for of in gradients)
    assert cpu.norm() > 1e-3 and (cpu - gpu_).norm() < 1e-3 * cpu.norm()


def trained(small_recipe, folder, model, device: str, terms: dict, **stage) -> tuple[Training, list[dict]]:
    gentle = {"optimizer": {"learning_rate": 1e-5}, **stage}
    made = Training(small_recipe, folder, terms, device, settings_of(model), **gentle)
    made.train()
    return made, made.metrics("step")


def test_live_candidates_and_losses_are_those_of_the_cpu(device, small_recipe, tiny_bert, tmp_path):
    stage = {"trainable": "query_tower", "positives": "all"}
    places = (tmp_path / "cpu", "cpu"), (tmp_path / "other", device)
    cpu, other = (trained(small_recipe, path, tiny_bert, on, LIVE, **stage) for path, on in places)
    assert [r["loss"] for r in other[1]] == pytest.approx([r["loss"] for r in cpu[1]], rel=1e-2)
    found = [[r["found"]["query.0"]["R@6"] for r in records] for _, records in (cpu, other)]
    assert found[1] == pytest.approx(found[0], abs=0.05)
    documents = other[0].stage().documents
    assert documents is not None and documents.whole.device.type == torch.device(device).type


@pytest.mark.parametrize(("k", "asked"), [(7, 600), (1000, 20)])
def test_a_search_finds_what_the_cpu_finds_ties_by_row(device, k, asked):
    rng = np.random.default_rng(0)
    # Products of whole numbers are exact in every order, and many are equal.
    documents, queries = (rng.integers(-3, 4, (count, 16)).astype(np.float32) for count in (70_000, asked))
    expected = search_arrays(searcher(documents, "torch", "cpu", World()), queries, k)
    found = search_arrays(searcher(documents, "torch", device, World()), queries, k)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    real, others = (rng.standard_normal((count, 16), np.float32) for count in (3000, 5))
    scores = search_arrays(searcher(real, "torch", device, World()), others, k)[0]
    np.testing.assert_allclose(scores, -np.sort(-(others @ real.T), 1)[:, :k], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("precision", "lowest"), [("fp32", 0.999999), ("bf16", 0.98)])
def test_vectors_are_those_of_the_cpu(device, tiny_bert, precision, lowest):
    config = EncoderConfig.model_validate(settings_of(tiny_bert))
    texts = ["the apple " * (number % 9) + f"text {number}" for number in range(50)]
    ours = initial_encoder(config, 0, device).encode(texts, "document", precision, 100)
    theirs = initial_encoder(config, 0).encode(texts, "document", "fp32")
    assert np.asarray(ours).shape == (50, 32)
    assert torch.cosine_similarity(torch.as_tensor(ours).cpu(), torch.as_tensor(theirs)).min() > lowest
    if precision == "fp32":
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def recipe_of(small_recipe, folder, device: str, **stage):
    return recipe_file(small_recipe({"ance": {**STAGE, **stage}}, device=device), folder)


def steps_of(run) -> list[int]:
    return [r["step"] for r in read_json_lines(run / "metrics.jsonl") if r["event"] == "step"]


def adopted(run) -> list[tuple[int, int]]:
    records = read_json_lines(run / "decisions.jsonl")
    return [(r["step"], r["checkpoint_step"]) for r in records if r["event"] == "adopt"]


def test_a_killed_run_goes_on_to_the_weights_of_an_undisturbed_one(device, server, small_recipe, tmp_path):
    recipe = recipe_of(small_recipe, tmp_path, device, refresh=REFRESH, save_every_steps=5)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    server.run("train", [str(recipe), "--output", str(whole)])
    strike = {"fault": "kill_in_step", "stage": "24", "step": 13}
    server.run("train", [str(recipe), "--output", str(killed)], code=-9, **strike)
    assert max(steps_of(killed)) < 13
    server.run("train", [str(recipe), "--output", str(killed), "--resume"])
    assert steps_of(killed) == steps_of(whole) == list(range(24))
    assert adopted(killed) == adopted(whole) == [(0, 0), (8, 8), (16, 16)]
    if device == "cpu":
        assert outcome(killed) == outcome(whole)
    towers = (load_encoder(run / "model").towers for run in (killed, whole))
    ours, theirs = (torch.cat([p.detach().reshape(-1) for p in each.parameters()]) for each in towers)
    assert (ours - theirs).norm() < 1e-3 * theirs.norm()


def test_a_refresher_in_the_background_shares_the_device(device, server, small_recipe, tmp_path):
    recipe, run = recipe_of(small_recipe, tmp_path, device, refresh=BACKGROUND), tmp_path / "run"
    server.run("train", [str(recipe), "--output", str(run)])
    assert adopted(run) == [(0, 0), (16, 8)]
    assert steps_of(run) == list(range(24))
    assert json.loads((run / "refresher.json").read_text())["status"] == "finished"
    assert json.loads((run / "measures.json").read_text())["rows"]
