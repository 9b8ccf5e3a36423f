import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.run_outcome import without_times
from helpers.stage_fixture import MIXED, Training

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.generation import open_generation, publish_evaluation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer import trainer
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.objective import term_losses
from pyserini_ance.trainer.trainer import StageTrainer

RANDOM = {"query": {"negatives": [{"kind": "random"}], "loss": {"kind": "nll", "scale": 0.1}}}
# How often dev is measured, its values, the result and the best ones; the second never improves on its start.
DEV = [(3, {0: 0, 3: 0.25, 6: 0.5, 9: 0.5, 10: 0.125}, 6, [0, 3, 6])]
DEV += [(5, {0: 0.5, 5: 0.25, 10: 0.5}, 0, [0])]


@pytest.fixture
def training(small_recipe, tmp_path):
    return lambda terms, **stage: Training(small_recipe, tmp_path, terms, **stage)


def test_a_term_that_trains_nothing_is_said_once(training, caplog):
    """A margin that ignores all negatives, as a batch of one text would."""
    masked = {"query": {**RANDOM["query"], "false_negative_margin": -1e9}}
    made = training({**RANDOM, "masked": masked["query"]}, steps=3)
    made.train()
    said = [record.getMessage() for record in caplog.records if "trains nothing" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith("stage a, step 0: none of the 4 anchors of term masked has")
    assert [record["without_negatives"] for record in made.metrics("step")] == [["masked"]] * 3


def test_each_refresh_that_fills_up_at_random_says_so_once(training, caplog):
    source = {"kind": "ann", "top_k": 5, "filters": [{"kind": "max_score", "max_score": -1e9}]}
    term = {"negatives": [source], "loss": {"kind": "nll", "scale": 0.1}}
    training({"query": term}, refresh={"every_steps": 4}).train()
    warned = [message for message in caplog.messages if "random negatives" in message]
    assert [message.split(": ")[0] for message in warned] == [f"stage a, step {step}" for step in (0, 4, 8)]


def test_refreshed_negatives_are_adopted_at_their_steps(training, monkeypatch):
    optimizer, drawn = {"learning_rate": 1e-3, "max_grad_norm": 1e-3}, []
    made = training(MIXED, refresh={"every_steps": 4}, optimizer=optimizer)

    def recorded(*arguments):
        drawn.append(plan_batch(*arguments))
        return drawn[-1]

    monkeypatch.setattr(trainer, "plan_batch", recorded)
    result = made.train()

    adopted = made.decisions("adopt")
    folders = [(record["step"], record["folder"]) for record in adopted]
    assert folders == [(step, f"negatives/a-{step:08d}") for step in (0, 4, 8)]
    assert adopted[0]["weights"] == made.start.weights and len({record["weights"] for record in adopted}) == 3
    generations = []
    for record in adopted:
        made_from = {"weights": record["weights"], **made.data.identity}
        generations.append(open_generation(made.run.folder / record["folder"], made_from).tables["query", 0])
    for step, batch in enumerate(drawn):
        candidates = generations[step // 4].candidates[batch.queries].tolist()
        lines = zip(batch.terms["query"].negatives.tolist(), candidates, strict=True)
        assert all(set(line) <= set(row) for line, row in lines)
    assert any((a.candidates != b.candidates).any() for a, b in itertools.pairwise(generations))

    steps = made.metrics("step")
    assert not any("false_negatives" in record for record in steps)
    assert [record["step"] for record in steps] == list(range(10))
    for record in steps:
        assert record["loss"] == pytest.approx(record["terms"]["query"] + 0.5 * record["terms"]["batch"])
        assert record["grad_norm"] > 1e-3  # before clipping
        assert record["learning_rate"] == pytest.approx(1e-3 * (10 - record["step"]) / 10)
        assert record["seconds"] > 0

    reports = [record["tables"]["query.0"] for record in made.metrics("generation")]
    assert [record["step"] for record in made.metrics("generation")] == [0, 4, 8]
    assert reports[0]["new_share"] is None and all(0 < report["new_share"] < 1 for report in reports[1:])
    assert [record["step"] for record in made.metrics("refresh")] == [0, 4, 8]
    ended = {"event": "stage_end", "stage": "a", "step": 10, "result": "a-00000010"}
    assert made.decisions("stage_end") == [{**ended, "weights": result.weights}]


@pytest.mark.parametrize("every, values, result, best", DEV)
def test_dev_scores_decide_on_the_result(training, caplog, every, values, result, best):
    made, last = training(RANDOM, steps=10, evaluate={"every_steps": every}), 10

    def measured(request):
        value = {"dev": values[request.step]}
        publish_evaluation(made.run.evaluation("a", request.step), value, request.weights, {})

    assert made.train(measured).folder == made.run.checkpoint("a", result)
    assert {record["step"]: record["value"] for record in made.metrics("dev")} == values
    assert [r["checkpoint_step"] for r in made.decisions("best")] == best
    assert [record["step"] for record in made.metrics("step")] == list(range(last))
    assert [(r["step"], r["result"]) for r in made.decisions("stage_end")] == [(last, f"a-{result:08d}")]
    kept = {f"a-{result:08d}", f"a-{last:08d}", "initial-00000000"}
    assert {folder.name for folder in made.run.checkpoints.iterdir()} == kept
    assert ("never improved on its start, which is its result" in caplog.text) == (result == 0)


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (0.5, math.nan)])
def test_a_loss_that_is_no_number_stops_the_run_before_the_weights_change(training, monkeypatch, loss, norm):
    made = training(RANDOM, save_every_steps=3)
    stage = made.stage()
    towers, before = stage.encoder.towers, []
    clip = trainer.clip_grad_norm_

    def broken_losses(*arguments):
        before.append([p.detach().clone() for p in towers.parameters()])
        losses = term_losses(*arguments)
        return {name: value * loss for name, value in losses.items()} if len(before) == 5 else losses

    def broken_clip(parameters, max_norm):
        if len(before) == 5:
            next(p for p in towers.parameters() if p.grad is not None).grad *= norm
        return clip(parameters, max_norm)

    monkeypatch.setattr(trainer, "term_losses", broken_losses)
    monkeypatch.setattr(trainer, "clip_grad_norm_", broken_clip)
    with pytest.raises(RuntimeError, match="stage a, step 4: the loss is .* or use precision: fp32"):
        stage.train()
    assert all(map(torch.equal, before[-1], towers.parameters()))
    assert [record["step"] for record in made.metrics("step")] == [0, 1, 2, 3]
    monkeypatch.undo()
    assert made.train(resume=True).folder == made.run.checkpoint("a", 10)


def everything(made: Training) -> list[dict]:
    """What a run records, but for times."""
    records = read_json_lines(made.run.metrics) + read_json_lines(made.run.decisions)
    return [without_times(record) for record in records]


EVERY = {"every_steps": 4}
# As the code of ANCE and ANCE-Tele draws.
AS_THE_CODE_DRAWS = {"refresh": {**EVERY, "restart_queries": True, "query_chunks": 2}, "repeats_per_query": 2}
ROLLING = {"query": {"negatives": [{"kind": "ann", "top_k": 6, "rolling": True}]}}
AS_THE_CODE_DRAWS["terms"] = lambda folder: ROLLING
LAMB = {"optimizer": {"kind": "lamb", "learning_rate": 1e-3}, "lr_schedule": {"warmup_steps": 2}}


def promoting(folder: Path) -> dict:
    """Terms whose first source promotes what a file calls relevant, as far down as its tables need.

    The file scores about a third of all pairs 1, chosen at random.
    """
    rng, things = np.random.default_rng(0), ("apple", "stone", "river", "cloud", "horse", "tiger")
    pairs = itertools.product(range(15), ("red", "green", "blue", "gray", "pink"), things)
    lines = [f"train-{q} Q0 {colour}-{thing} 1 {int(rng.random() < 0.3)} t\n" for q, colour, thing in pairs]
    (folder / "relevant.trec").write_text("".join(lines))
    teacher = {"kind": "ranking", "file": str(folder / "relevant.trec")}
    promote = {"kind": "teacher", "teacher": teacher, "max_score": 0.5, "then": "promote"}
    first = {"kind": "ann", "top_k": 8, "num_negatives": 2, "filters": [promote]}
    loss = {"loss": {"kind": "nll", "scale": 0.1}}
    batch = {"negatives_from": "query", "in_batch_negatives": True, "false_negative_margin": 0.0, **loss}
    return {"query": {"negatives": [first, {"kind": "ann", "top_k": 20}], **loss}, "batch": batch}


PROMOTING = {"refresh": EVERY, "terms": promoting}


@pytest.mark.parametrize("settings", [{"refresh": EVERY, **LAMB}, AS_THE_CODE_DRAWS, PROMOTING])
@pytest.mark.long
def test_a_stage_interrupted_anywhere_ends_with_the_same_weights(training, monkeypatch, tmp_path, settings):
    settings = {"terms": lambda folder: MIXED, **settings}
    settings["terms"] = settings["terms"](tmp_path)
    made = training(evaluate={"every_steps": 5}, save_every_steps=3, positives="random", **settings)
    real = made.make
    whole = made.train()
    expected = everything(made)
    made.run.metrics.unlink(), made.run.decisions.unlink()
    kept = [*made.run.checkpoints.glob("a-*"), *made.run.negatives.iterdir(), *made.run.evaluations.iterdir()]
    for folder in kept:
        folder.rename(made.run.folder / f"{folder.parent.name}.{folder.name}.whole")

    stops, refreshes = [0, 2, 5, 7, 9], [4, 5]

    def interrupted(stage, number, step, *rest):
        if stops and stops[0] == step:
            stops.pop(0)
            raise KeyboardInterrupt
        return plan_batch(stage, number, step, *rest)

    def interrupted_refresh(order):
        real(order)
        if refreshes and refreshes[0] == order.step:  # everything was published, nothing taken
            refreshes.pop(0)
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "plan_batch", interrupted)
    for resume in [False] + [True] * 6:
        with pytest.raises(KeyboardInterrupt):
            made.train(interrupted_refresh, resume)
    result = made.train(interrupted_refresh, resume=True)
    assert not stops and not refreshes
    assert result.weights == whole.weights and result.folder == whole.folder
    assert everything(made) == expected


def test_a_stage_of_queries_leaves_documents_bitwise_as_they_were(training, monkeypatch):
    """Tied towers part; the vectors of documents are made once for all refreshes."""
    made, encoded = training(MIXED, trainable="query_tower", refresh={"every_steps": 4}, chunk_queries=2), []
    encode = Encoder.encode_on_device

    def counted(encoder, tokens, rows, side, *settings):
        encoded.extend(rows if side == "document" else ())
        return encode(encoder, tokens, rows, side, *settings)

    monkeypatch.setattr(Encoder, "encode_on_device", counted)
    stage = made.stage()
    result = stage.train()
    assert result.document_weights == made.start.document_weights
    assert result.query_weights != made.start.query_weights
    before, after = load_encoder(made.start.encoder).towers, load_encoder(result.encoder).towers
    assert not after.tied
    assert all(map(torch.equal, after.documents.parameters(), before.documents.parameters()))
    assert sorted(encoded) == list(range(30)) and len(made.decisions("adopt")) == 3
    held = [p for group in stage.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in stage.encoder.towers.queries.parameters()}


def test_moments_are_kept_between_stages_when_wanted(small_recipe, tmp_path):
    constant = {"optimizer": {"learning_rate": 1e-3}, "lr_schedule": {"kind": "constant"}}
    one = {"steps": 1, "batch_queries": 4, "terms": RANDOM, **constant}
    recipe = small_recipe({"a": {**one, "steps": 3}, "kept": {**one, "keep_optimizer": True}, "new": one})
    run, data = RunDir(tmp_path), tokenize(recipe, read_collection(recipe))
    encoder = initial_encoder(recipe.encoder, 0)
    checkpoint = publish_checkpoint(run, encoder, None, TrainingProgress("initial", 0))
    for name, counts in {"a": {3}, "kept": {4}, "new": {1}}.items():
        stage = StageTrainer(recipe, name, data, run, World(), lambda product: SyncExecutor(None), checkpoint)
        checkpoint = stage.train()
        assert {int(state["step"]) for state in stage.optimizer.state.values() if state} == counts
