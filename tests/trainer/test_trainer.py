import math

import numpy as np
import pytest
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import load_encoder, start_encoder
from pyserini_ance.experiment.experiment import accelerator_of
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Place, publish_checkpoint
from pyserini_ance.runs.generation import Refreshed, open_tables
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.step import StepRunner
from pyserini_ance.trainer.trainer import StageTraining

RANDOM = {"query": {"negatives": [{"kind": "random"}], "loss": {"kind": "nll", "scale": 0.1}}}
MIXED = {
    "query": {"negatives": [{"kind": "ann", "depth": 8, "per_query": 2}], "loss": {"kind": "nll", "scale": 0.1}},
    "batch": {"pool": "step", "loss": {"kind": "nll", "scale": 0.1}, "weight": 0.5},
}


class Training:
    """A stage over the small collection in a run directory of its own."""

    def __init__(self, small_recipe, folder, terms: dict, **stage):
        settings = {"steps": 10, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": terms, **stage}
        self.recipe, self.run = small_recipe({"a": settings}), RunDir(folder)
        self.data = tokenise(self.recipe, read_collection(self.recipe))
        self.start = publish_checkpoint(self.run, start_encoder(self.recipe.encoder, 0), None, Place("initial", 0))

    def train(self, refresh=None, resume: bool = False):
        refresh = refresh or Refresher(self.recipe, self.data, self.run, "cpu", World()).refresh
        stage = StageTraining(self.recipe, "a", self.data, self.run, accelerator_of(self.recipe), refresh)
        return stage.train(self.start, resume)

    def metrics(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.metrics) if record["event"] == event]

    def decisions(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.decisions) if record["event"] == event]


@pytest.fixture
def training(small_recipe, tmp_path):
    return lambda terms, **stage: Training(small_recipe, tmp_path, terms, **stage)


def dev_values(values: dict[int, float]):
    """A refresh that mines nothing and measures what it is told."""
    return lambda checkpoint, stage, step, sources, tables, measure: Refreshed(dev=values[step] if measure else None)


def test_refreshed_negatives_are_adopted_at_their_steps(training, monkeypatch):
    made, drawn = training(MIXED, refresh={"every_steps": 4}, optimizer={"learning_rate": 1e-3, "max_grad_norm": 1e-3}), []
    accumulate = StepRunner.accumulate
    monkeypatch.setattr(StepRunner, "accumulate", lambda runner, batch, step: (drawn.append(batch), accumulate(runner, batch, step))[1])
    result = made.train()

    adopted = made.decisions("adopt")
    assert [(record["step"], record["folder"]) for record in adopted] == [(step, f"negatives/a-{step:08d}") for step in (0, 4, 8)]
    assert adopted[0]["weights"] == made.start.weights and len({record["weights"] for record in adopted}) == 3
    generations = [open_tables(made.run.folder / record["folder"], record["weights"], made.data.collection.digest)["query", 0] for record in adopted]
    for step, batch in enumerate(drawn):
        candidates = generations[step // 4].candidates[batch.queries]
        assert all(set(line) <= set(row) for line, row in zip(batch.negatives["query"].tolist(), candidates.tolist(), strict=True))
    assert any((a.candidates != b.candidates).any() for a, b in zip(generations, generations[1:], strict=False))

    steps = made.metrics("step")
    assert [record["step"] for record in steps] == list(range(10))
    for record in steps:
        assert record["loss"] == pytest.approx(record["terms"]["query"] + 0.5 * record["terms"]["batch"])
        assert record["grad_norm"] > 1e-3  # before clipping
        assert record["learning_rate"] == pytest.approx(1e-3 * (10 - record["step"]) / 10) and record["seconds"] > 0

    reports = [record["tables"]["query.0"] for record in made.metrics("generation")]
    assert [record["step"] for record in made.metrics("generation")] == [0, 4, 8]
    assert all(len(report["positive_ranks"]) == 15 and set(report["margin"]) == {"mean", "p10", "p50", "p90"} for report in reports)
    assert reports[0]["new_share"] is None and all(0 < report["new_share"] < 1 for report in reports[1:])
    assert [record["step"] for record in made.metrics("refresh")] == [0, 4, 8]
    assert made.decisions("stage_end") == [
        {"event": "stage_end", "stage": "a", "step": 10, "result": "a-00000010", "weights": result.weights}
    ]


def test_the_best_checkpoint_by_the_dev_measure_is_the_result(training):
    made = training(RANDOM, evaluate={"every_steps": 3})
    result = made.train(dev_values({3: 0.25, 6: 0.5, 9: 0.5, 10: 0.125}))
    assert result.folder == made.run.checkpoint("a", 6)
    assert [(record["step"], record["value"]) for record in made.metrics("dev")] == [(3, 0.25), (6, 0.5), (9, 0.5), (10, 0.125)]
    assert [(record["step"], record["value"]) for record in made.decisions("best")] == [(3, 0.25), (6, 0.5)]
    assert sorted(folder.name for folder in made.run.checkpoints.iterdir()) == ["a-00000006", "initial-00000000"]


def test_the_last_checkpoint_is_the_result_when_the_best_is_not_wanted(training):
    made = training(RANDOM, evaluate={"every_steps": 5, "keep_best": False})
    assert made.train(dev_values({5: 0.5, 10: 0.25})).folder == made.run.checkpoint("a", 10)


def test_static_negatives_are_mined_once(training, tmp_path):
    ranked = "".join(f"train-{query} Q0 blue-tiger 1 2 t\ntrain-{query} Q0 gray-tiger 2 1 t\n" for query in range(15))
    (tmp_path.parent / "ranked.trec").write_text(ranked)
    sources = [{"kind": "run", "file": str(tmp_path.parent / "ranked.trec")}, {"kind": "ann"}]
    made, asked = training({"query": {"negatives": sources}}, steps=8, refresh={"every_steps": 4}), {}
    real = Refresher(made.recipe, made.data, made.run, "cpu", World()).refresh

    def refresh(checkpoint, stage, step, sources, *rest):
        asked[step] = [position for _, position in sources]
        return real(checkpoint, stage, step, sources, *rest)

    made.train(refresh)
    assert asked == {0: [0, 1], 4: [1]}  # and nothing is mined after the last step


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (0.5, math.nan)])
def test_a_loss_that_is_no_number_stops_the_run_before_it_reaches_the_weights(training, monkeypatch, loss, norm):
    made = training(RANDOM, save_every_steps=3)
    accumulate, seen = StepRunner.accumulate, []

    def break_down(runner, batch, step):
        seen.append([p.detach().clone() for p in runner.encoder.towers.parameters()])
        losses = accumulate(runner, batch, step)
        if step == 4:
            seen.append(runner.encoder)
            next(p for p in runner.encoder.towers.parameters() if p.grad is not None).grad *= norm
            return dict.fromkeys(losses, loss)
        return losses

    monkeypatch.setattr(StepRunner, "accumulate", break_down)
    with pytest.raises(RuntimeError, match="stage a, step 4: the loss is .*; lower stages.a.optimizer.learning_rate or use precision: fp32"):
        made.train()
    before, encoder = seen[-2:]
    assert all(map(torch.equal, before, encoder.towers.parameters()))
    assert [record["step"] for record in made.metrics("step")] == [0, 1, 2, 3]
    monkeypatch.undo()
    assert made.train(resume=True).folder == made.run.checkpoint("a", 10)


def everything(made: Training) -> list[dict]:
    """What a run records, but for times."""
    records = read_json_lines(made.run.metrics) + read_json_lines(made.run.decisions)
    return [{key: value for key, value in record.items() if key not in ("seconds", "parts")} for record in records]


def test_a_stage_that_was_interrupted_anywhere_ends_with_the_same_weights(training, monkeypatch):
    made = training(MIXED, refresh={"every_steps": 4}, evaluate={"every_steps": 5}, save_every_steps=3, positives="random")
    real = Refresher(made.recipe, made.data, made.run, "cpu", World()).refresh
    whole = made.train()
    expected = everything(made)
    made.run.metrics.unlink(), made.run.decisions.unlink()
    for folder in [*made.run.checkpoints.glob("a-*"), *made.run.negatives.iterdir()]:
        folder.rename(made.run.folder / f"{folder.parent.name}.{folder.name}.whole")

    accumulate, stops, refreshes = StepRunner.accumulate, [0, 2, 5, 7, 9], [4, 5]

    def interrupted(runner, batch, step):
        if stops and stops[0] == step:
            stops.pop(0)
            raise KeyboardInterrupt
        return accumulate(runner, batch, step)

    def interrupted_refresh(checkpoint, stage, step, *rest):
        if refreshes and refreshes[0] == step:
            refreshes.pop(0)
            real(checkpoint, stage, step, *rest)  # everything was published, nothing taken
            raise KeyboardInterrupt
        return real(checkpoint, stage, step, *rest)

    monkeypatch.setattr(StepRunner, "accumulate", interrupted)
    for resume in [False] + [True] * 6:
        with pytest.raises(KeyboardInterrupt):
            made.train(interrupted_refresh, resume)
    result = made.train(interrupted_refresh, resume=True)
    assert not stops and not refreshes
    assert result.weights == whole.weights and result.folder == whole.folder
    assert everything(made) == expected


def test_moments_are_kept_between_stages_when_wanted(small_recipe, tmp_path):
    first = {"steps": 3, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3, "decay": "constant"}, "terms": RANDOM}
    recipe = small_recipe({"a": first, "kept": {**first, "keep_optimizer": True, "steps": 1}, "new": {**first, "steps": 1}})
    run, data = RunDir(tmp_path), tokenise(recipe, read_collection(recipe))
    checkpoint = publish_checkpoint(run, start_encoder(recipe.encoder, 0), None, Place("initial", 0))
    for name, counts in {"a": {3}, "kept": {4}, "new": {1}}.items():
        stage = StageTraining(recipe, name, data, run, accelerator_of(recipe), refresh=None, world=World())
        checkpoint = stage.train(checkpoint)
        assert {int(state["step"]) for state in stage.optimizer.state.values() if state} == counts


def test_encodings_see_no_dropout_and_training_does(training):
    made = training(MIXED, refresh={"every_steps": 5})
    refresh = Refresher(made.recipe, made.data, made.run, "cpu", World()).refresh
    stage = StageTraining(made.recipe, "a", made.data, made.run, accelerator_of(made.recipe), refresh)
    result = stage.train(made.start)
    assert all(module.training for module in stage.encoder.towers.modules())
    record = made.data.collection.documents.take([0])
    again = load_encoder(result.encoder).encode(record, "document")
    assert np.array_equal(stage.encoder.encode(record, "document"), again)
    assert all(module.training for module in stage.encoder.towers.modules())
