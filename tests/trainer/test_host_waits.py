"""How often the host of a GPU waits in a training step, counted on torch's meta device."""

from dataclasses import replace

import pytest
import torch
from helpers.device_counts import META, DeviceCounts
from helpers.run_outcome import without_times
from helpers.stage_fixture import StopAt, Training
from tqdm import tqdm

from pyserini_ance.runs.checkpoint import newest_progress
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer import trainer
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.optim import build_optimizer
from pyserini_ance.trainer.step import BatchEncoder
from pyserini_ance.trainer.step_report import LossNotFinite
from pyserini_ance.trainer.trainer import StageTrainer
from pyserini_ance.vectors.search import searcher

RANDOM = [{"kind": "random", "num_negatives": 3}]


def own_pool(loss: str, **settings) -> dict:
    return {"query": {"negatives": RANDOM, "loss": {"kind": loss, **settings}}}


def counted_step(training: Training, tokens_per_batch: int = 256) -> DeviceCounts:
    stage = training.stage()
    stage.batch_encoder = replace(stage.batch_encoder, tokens_per_batch=tokens_per_batch)
    stage._before_step(0)
    to_meta(stage)
    with DeviceCounts() as counts:
        stage._train_step(0, tqdm(disable=True))
    return counts


def to_meta(stage: StageTrainer) -> None:
    towers = stage.encoder.towers
    for module in towers.modules():
        if hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation("sdpa")
    towers.to(META)
    stage.encoder.device = META
    if stage.documents is not None:
        stage.documents.device = META
        held = stage.documents.whole = stage.documents.whole.to(META)
        searches = dict.fromkeys(stage.documents.searches, searcher(held, "torch", "meta", stage.world))
        stage.documents.searches = searches
    # torch's fused AdamW knows no meta device.
    settings = stage.stage.optimizer.model_copy(update={"kind": "lamb"})
    stage.optimizer = stage.checkpoints.optimizer = build_optimizer(towers, settings)


IN_BATCH = {"query": {"in_batch_negatives": True, "loss": {"kind": "nll"}}}
LIVE = {"query": {"negatives": [{"kind": "live", "top_k": 6}], "loss": {"kind": "lambdarank"}}}
MARGIN = {"query": {**own_pool("nll")["query"], "false_negative_margin": 0.1, "num_hardest": 1}}
NDCG = own_pool("lambdarank", measure="nDCG")
DUAL = {**own_pool("nll"), "document": {**own_pool("bce")["query"], "anchor": "document"}}
UNIFORM = {**own_pool("nll"), "spread": {"regularizer": {"kind": "uniformity"}}}
# The host waits when the losses and the norm of the step before have arrived, which the counts leave out.
CASES = {  # terms, settings of the stage, waits, copies to the device, copies to the host
    "own pool": (own_pool("nll"), {}, 0, 7, 1),
    "hinge": (own_pool("hinge"), {}, 0, 7, 1),
    "nDCG": (NDCG, {"positives": "all"}, 0, 7, 1),
    "false negatives": (MARGIN, {}, 0, 7, 1),
    "dual": (DUAL, {}, 0, 9, 1),
    "regularizer": (UNIFORM, {}, 0, 8, 1),
    "two chunks": (own_pool("nll"), {"chunk_queries": 2}, 0, 12, 1),
    "chunks of tokens": (own_pool("nll"), {}, 0, 24, 1),
    "in-batch": (IN_BATCH, {}, 0, 6, 1),
    "GradCache": (IN_BATCH, {"chunk_queries": 2}, 0, 16, 1),
    # The host needs the rows that are found.
    "LTRe": (LIVE, {"trainable": "query_tower", "positives": "all"}, 1, 6, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_the_host_does_not_wait_in_a_step(small_recipe, tmp_path, monkeypatch, case):
    terms, settings, waits, to_device, to_host = CASES[case]
    if case != "chunks of tokens":
        monkeypatch.setattr(BatchEncoder, "_within_budget", lambda self, batch: [batch])
    counts = counted_step(Training(small_recipe, tmp_path, terms, **settings))
    assert counts.waits.total() == waits, counts.places
    assert counts.copies == {"to device": to_device, "to host": to_host}


TWO_TERMS = {**own_pool("nll"), "batch": {**IN_BATCH["query"], "weight": 0.5, "false_negative_margin": 0.0}}
MINED = {"query": {"negatives": [{"kind": "ann", "top_k": 8, "num_negatives": 2}], "loss": {"kind": "nll"}}}
STAGES = {
    "two terms": (TWO_TERMS, {"save_every_steps": 4}),
    "refreshed": (MINED, {"refresh": {"every_steps": 3}, "evaluate": {"every_steps": 4}}),
    "LTRe": (LIVE, {"trainable": "query_tower", "positives": "all"}),
}


class Seen(TrainerCallback):
    def __init__(self) -> None:
        self.calls: list = []

    def on_step_end(self, stage, step, losses, metrics):
        self.calls.append((step, losses, without_times(metrics)))

    def on_refresh(self, stage, step, generation):
        self.calls.append((step, generation.step))

    def on_dev_measure(self, stage, step, measure, value):
        self.calls.append((step, value))


@pytest.mark.parametrize("case", STAGES)
def test_a_stage_that_reads_its_numbers_late_is_the_same(small_recipe, tmp_path, monkeypatch, case):
    terms, settings = STAGES[case]

    def trained(folder: str, late: bool):
        training, seen, unread = Training(small_recipe, tmp_path / folder, terms, **settings), Seen(), []
        stage = training.stage(callbacks=[seen])
        stage.runs_ahead, report_steps = late, stage._report_steps

        def counted(*bar, **options):
            unread.append(len(stage.unread))
            report_steps(*bar, **options)

        monkeypatch.setattr(stage, "_report_steps", counted)
        result = stage.train()
        timeless = [without_times(record) for record in read_json_lines(training.run.metrics)]
        return result.weights, timeless, seen.calls, max(unread)

    at_once, late = trained("at-once", False), trained("late", True)
    assert (at_once[3], late[3]) == (1, 2)
    assert late[:3] == at_once[:3]


def test_an_interrupted_stage_that_reads_its_numbers_late_logs_every_step(small_recipe, tmp_path):
    training = Training(small_recipe, tmp_path / "run", TWO_TERMS)
    stage = training.stage(callbacks=[StopAt(4)])
    stage.runs_ahead = True
    with pytest.raises(KeyboardInterrupt):
        stage.train()
    assert [record["step"] for record in training.metrics("step")] == [0, 1, 2, 3, 4, 5]
    assert newest_progress(training.run, "a").step == 6
    whole = Training(small_recipe, tmp_path / "whole", TWO_TERMS).train()
    assert training.train(resume=True).weights == whole.weights


def test_a_loss_that_is_not_finite_is_found_late_and_never_saved(small_recipe, tmp_path, monkeypatch):
    training = Training(small_recipe, tmp_path, TWO_TERMS, save_every_steps=4)
    stage = training.stage()
    stage.runs_ahead, losses = True, trainer.term_losses
    broken = torch.tensor(torch.nan)

    def from_step_3(*arguments):
        of_terms = losses(*arguments)
        return {n: loss * broken for n, loss in of_terms.items()} if stage.progress.step >= 3 else of_terms

    monkeypatch.setattr(trainer, "term_losses", from_step_3)
    with pytest.raises(LossNotFinite, match=r"stage a, step 3: the loss is nan \(term .*: nll, "):
        stage.train()
    assert [record["step"] for record in training.metrics("step")] == [0, 1, 2]
    assert not list(training.run.checkpoints.glob("a-*"))
