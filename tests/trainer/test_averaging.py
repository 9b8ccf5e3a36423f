"""A stage's result as a mean of weights: against sums in float64, kept through interruptions, traceable."""

from pathlib import Path

import pytest
import torch
from helpers.run_outcome import without_times
from helpers.stage_fixture import MIXED, Training

from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.models import Retention
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import publish_evaluation
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.storage.publish import MANIFEST, read_manifest
from pyserini_ance.trainer import checkpoints as module

RANDOM = {"query": {"negatives": [{"kind": "random"}], "loss": {"kind": "nll", "scale": 0.1}}}


@pytest.fixture
def training(small_recipe, tmp_path):
    return lambda terms=RANDOM, **stage: Training(small_recipe, tmp_path, terms, **stage)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_encoder(folder).towers.state_dict()


def assert_mean(found: dict[str, torch.Tensor], parts: list[tuple[float, dict[str, torch.Tensor]]]) -> None:
    """Each weight is the float64 sum of share times weight, rounded once."""
    for name, weight in found.items():
        if weight.is_floating_point():
            total = sum(share * weights[name].double() for share, weights in parts)
            torch.testing.assert_close(weight.double(), total, rtol=2**-23, atol=1e-12)


def test_the_last_evaluated_checkpoints_are_averaged_and_kept_until_then(training):
    made = training(
        steps=11, evaluate={"every_steps": 2, "keep_best": False}, average={"start": 0.4, "checkpoints": 3}
    )
    seen, kept = [], {}

    def rising(order):
        value = {"dev": order.step / 100}
        publish_evaluation(made.run.evaluation("a", order.step), value, order.weights, {})

    stage = made.stage(rising)
    prune = stage.checkpoints.prune

    def watched(*arguments):
        prune(*arguments)
        folders = sorted(made.run.checkpoints.glob("a-*"))
        seen.append([int(folder.name[-2:]) for folder in folders])
        kept.update({int(folder.name[-2:]): weights_of(folder / "encoder") for folder in folders})

    stage.checkpoints.prune = watched
    result = stage.train()
    assert seen == [[2], [2, 4], [2, 4, 6], [4, 6, 8], [6, 8, 10], [8, 10, 11]]
    start = weights_of(made.start.encoder)
    shares = [(0.4, start), *((0.2, kept[step]) for step in (8, 10, 11))]
    assert_mean(weights_of(result.encoder), shares)
    averaged = [part["checkpoint"] for part in made.decisions("average")[0]["of"]]
    assert averaged == ["initial-00000000", "a-00000008", "a-00000010", "a-00000011"]


@pytest.mark.parametrize(
    ("values", "trained", "result"),
    [
        ({0: 0.1, 5: 0.5, 10: 0.3, 11: 0.6}, 5, 11),
        ({0: 0.1, 5: 0.5, 10: 0.3, 11: 0.5}, 5, 11),  # at least as good
        ({0: 0.1, 5: 0.3, 10: 0.5, 11: 0.4}, 10, 10),
        ({0: 0.6, 5: 0.5, 10: 0.3, 11: 0.55}, 5, 0),  # better than what was trained, below the start
        ({0: 0.6, 5: 0.5, 10: 0.3, 11: 0.7}, 5, 11),
    ],
)
def test_with_keep_best_the_average_is_one_more_candidate(training, values, trained, result):
    made = training(evaluate={"every_steps": 5}, average={"start": 0.5})

    def measured(order):
        value = {"dev": values[order.step]}
        publish_evaluation(made.run.evaluation("a", order.step), value, order.weights, {})

    found = made.train(measured)
    assert found.folder == made.run.checkpoint("a", result)
    [record] = made.decisions("average")
    assert record["value"] == values[11] and record["is_result"] == (result == 11)
    assert [part["checkpoint"] for part in record["of"]] == ["initial-00000000", f"a-{trained:08d}"]
    assert made.decisions("best")[-1]["value"] == values[result]
    assert [record["event"] for record in made.metrics("average")] == ["average"]


@pytest.mark.parametrize("trainable", ["both", "query_tower"])
def test_a_stage_ends_with_the_mean_of_its_start_and_its_last_weights(training, trainable):
    """A frozen document tower stays bitwise the same."""
    refreshed = {"trainable": trainable, "refresh": {"every_steps": 4}}
    made = training(MIXED, **refreshed, average={"start": 0.25})
    made.recipe = made.recipe.model_copy(update={"retention": Retention(save_total_limit=2)})
    result, last = made.train(), Checkpoint.open(made.run.checkpoint("a", 10))
    assert result == Checkpoint.open(made.run.checkpoint("a", 11))
    assert (result.document_weights == made.start.document_weights) == (trainable == "query_tower")
    assert len({result.weights, last.weights, made.start.weights}) == 3
    shares = [(0.25, weights_of(made.start.encoder)), (0.75, weights_of(last.encoder))]
    assert_mean(weights_of(result.encoder), shares)
    parts = [
        {"checkpoint": "initial-00000000", "weights": made.start.weights, "share": 0.25},
        {"checkpoint": "a-00000010", "weights": last.weights, "share": 0.75},
    ]
    where = {"event": "average", "stage": "a", "step": 10}
    assert made.decisions("average") == [{**where, "weights": result.weights, "of": parts, "is_result": True}]
    assert read_manifest(result.folder)["average_of"] == parts
    assert made.decisions("stage_end")[0]["result"] == "a-00000011"


def records(made: Training) -> list[dict]:
    records = read_json_lines(made.run.metrics) + read_json_lines(made.run.decisions)
    return [without_times(record) for record in records]


def contents(made: Training) -> dict[str, bytes]:
    """All files of the checkpoints but the manifests, which hold the time."""
    files = (path for path in made.run.checkpoints.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {str(path.relative_to(made.run.checkpoints)): path.read_bytes() for path in files}


def test_a_run_that_is_stopped_while_it_averages_ends_with_the_same_bytes(training, monkeypatch):
    made = training(evaluate={"every_steps": 4}, average={"start": 0.5, "checkpoints": 2})
    make, publish = made.make, module.publish_checkpoint
    whole = made.train()
    expected, files = records(made), contents(made)
    made.run.metrics.unlink(), made.run.decisions.unlink()
    for folder in [*made.run.checkpoints.glob("a-*"), *made.run.evaluations.iterdir()]:
        folder.rename(made.run.folder / f"{folder.parent.name}.{folder.name}.whole")
    stops = ["before", "after", "evaluation"]

    def stopped(run, encoder, optimizer, *arguments, **more):
        if optimizer is not None:  # no average
            return publish(run, encoder, optimizer, *arguments, **more)
        if stops[:1] == ["before"]:
            stops.pop(0)
            raise KeyboardInterrupt
        published = publish(run, encoder, optimizer, *arguments)
        if stops[:1] == ["after"]:
            stops.pop(0)
            raise KeyboardInterrupt
        return published

    def stopped_evaluation(order):
        make(order)
        if order.step == 11 and stops == ["evaluation"]:
            stops.pop(0)
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "publish_checkpoint", stopped)
    for resume in (False, True, True):
        with pytest.raises(KeyboardInterrupt):
            made.train(stopped_evaluation, resume)
    assert stops == [] and not made.decisions("stage_end")
    assert made.train(stopped_evaluation, resume=True) == whole
    assert records(made) == expected and contents(made) == files


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"average": {}}, "set `start` .a share of the initial weights., `checkpoints` .a number., or both"),
        ({"average": {"checkpoints": 2}}, "average.checkpoints is 2, but dev evaluates 0 checkpoints"),
        (
            {"average": {"checkpoints": 4}, "evaluate": {"every_steps": 4}},
            "average.checkpoints is 4, but dev evaluates 3 checkpoints in 10 steps; lower it, or ev",
        ),
    ],
)
def test_averages_that_cannot_be_taken_are_refused(settings, message):
    stage = {"steps": 10, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": RANDOM}
    with pytest.raises(ValueError, match=message):
        Stage.model_validate({**stage, **settings})
