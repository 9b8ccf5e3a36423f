"""Training in fp16 with a scaled loss, on the CPU: torch.amp.GradScaler does the same there."""

from functools import partial

import pytest
import torch
from helpers.stage_fixture import StopAt, Training
from helpers.stages import LOSS, make_stage

from pyserini_ance.pipeline.experiment import check_precision
from pyserini_ance.recipe.term import Term
from pyserini_ance.trainer.objective import Counts
from pyserini_ance.trainer.step_report import LossNotFinite, StepReport

TERMS = {"query": {"negatives": [{"kind": "random", "num_negatives": 2}], "loss": LOSS}}


def train_in_fp16(patch, scale: float) -> None:
    """From this scale on, which doubles after three steps."""
    scaler = partial(torch.amp.GradScaler, init_scale=scale, growth_interval=3)
    patch.setattr("torch.amp.GradScaler", scaler)
    patch.setattr("pyserini_ance.trainer.trainer.resolve_precision", lambda *_: "fp16")


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_steps_in_fp16_are_near_those_in_fp32(small_recipe, tmp_path, monkeypatch, kind):
    optimizer = {"kind": kind, "learning_rate": 1e-3}
    full = Training(small_recipe, tmp_path / "fp32", TERMS, optimizer=optimizer)
    full.train()
    train_in_fp16(monkeypatch, 64.0)
    half = Training(small_recipe, tmp_path / "fp16", TERMS, optimizer=optimizer)
    half.train()
    assert [r["loss_scale"] for r in half.metrics("step")] == [64.0] * 3 + [128.0] * 3 + [256.0] * 3 + [512.0]
    for ours, theirs in zip(half.metrics("step"), full.metrics("step"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.01) and ours["loss"] != theirs["loss"]
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=0.05)
        assert "loss_scale" not in theirs


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_infinite_gradients_skip_the_step_and_halve_the_scale(small_recipe, tmp_path, monkeypatch, kind):
    train_in_fp16(monkeypatch, 2.0**40)
    optimizer = {"kind": kind, "learning_rate": 1e-3}
    training = Training(small_recipe, tmp_path, TERMS, steps=4, optimizer=optimizer)
    stage = training.stage()
    before = [p.detach().clone() for p in stage.encoder.towers.parameters()]
    stage.train()
    assert [r["loss_scale"] for r in training.metrics("step")] == [2.0**40, 2.0**39, 2.0**38, 2.0**37]
    assert all(r["skipped"] and "grad_norm" not in r for r in training.metrics("step"))
    assert all(torch.equal(p, old) for p, old in zip(stage.encoder.towers.parameters(), before, strict=True))
    assert not any(state["exp_avg"].any() for state in stage.optimizer.state.values())


def test_a_resumed_stage_goes_on_with_the_scale(small_recipe, tmp_path, monkeypatch):
    train_in_fp16(monkeypatch, 64.0)
    whole = Training(small_recipe, tmp_path / "whole", TERMS).train()
    training = Training(small_recipe, tmp_path / "run", TERMS)
    with pytest.raises(KeyboardInterrupt):
        training.train(callbacks=[StopAt(4)])
    train_in_fp16(monkeypatch, 1.0)  # not used: the checkpoint has a scale
    assert training.train(resume=True).weights == whole.weights
    scales = [record["loss_scale"] for record in training.metrics("step")]
    assert scales == [64.0] * 3 + [128.0] * 3 + [256.0] * 3 + [512.0]


def report(loss: float, grad_norm: float, scale: float | None) -> StepReport:
    made = StepReport(3, {"query": Term.model_validate(TERMS["query"])})
    made.add({"query": torch.tensor(loss)}, Counts(), 1.0)
    made.send(torch.tensor(grad_norm), None if scale is None else torch.tensor(scale))
    return made


def test_what_no_scale_would_mend_stops_training():
    inf = float("inf")
    report(1.0, inf, 2.0).read("a")
    for loss, norm, scale in ((1.0, inf, None), (1.0, inf, 0.5), (inf, inf, 64.0), (inf, 1.0, 64.0)):
        with pytest.raises(LossNotFinite, match="stage a, step 3"):
            report(loss, norm, scale).read("a")


def test_training_on_a_cpu_refuses_fp16(small_recipe):
    with pytest.raises(ValueError, match="precision is fp16, but training is on the CPU"):
        check_precision(small_recipe({"a": make_stage(terms=TERMS)}, precision="fp16"))
