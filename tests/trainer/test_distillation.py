import numpy as np
import pytest
import torch
from helpers.stage_fixture import Training

from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.callbacks import TrainerCallback

DRAW = {"negatives": [{"kind": "ann", "top_k": 8, "num_negatives": 3}], "loss": {"kind": "nll", "scale": 0.1}}
DISTIL = {
    "negatives_from": "query",
    "teacher": {"kind": "student"},
    "loss": {"kind": "kl", "scale": 0.5, "teacher_temperature": 3.0},
    "weight": 0.5,
}


class Losses(TrainerCallback):
    def __init__(self):
        self.terms = []

    def on_step_end(self, stage, step, losses, metrics):
        self.terms.append((dict(losses), metrics["loss"]))


@pytest.fixture
def without_dropout(small_recipe):

    def make(stages: dict, **settings):
        encoder = small_recipe(stages, **settings).encoder.model_dump(mode="json")
        return small_recipe(stages, **settings, encoder={**encoder, "dropout": 0.0})

    return make


@pytest.fixture
def training(small_recipe, tmp_path):
    terms = {"query": {**DRAW, "in_batch_negatives": True}, "distil": DISTIL}
    return Training(small_recipe, tmp_path / "run", terms, steps=6, refresh={"every_steps": 4})


def drawn(training, step: int, generation_step: int):
    data = training.data
    generation = open_generation(training.run.generation("a", generation_step), data.identity)
    stage, scores = training.recipe.stages["a"], generation.teacher_scores
    return plan_batch(stage, 0, step, training.recipe.seed, data.anchor_sets, generation.tables, (), scores)


def test_the_loss_is_that_of_a_slow_loop(without_dropout, tmp_path):
    terms = {"query": {**DRAW, "in_batch_negatives": True}, "distil": DISTIL}
    training = Training(without_dropout, tmp_path / "run", terms, steps=1, refresh={"every_steps": 4})
    losses = Losses()
    training.train(callbacks=[losses])
    batch = drawn(training, 0, 0)
    own, taught = batch.terms["query"], batch.terms["distil"]
    assert own.teacher is None and (taught.negatives == own.negatives).all()
    encoder = load_encoder(training.start.encoder)  # also the student at step 0
    collection = training.data.collection
    queries = encoder.encode(collection.split("train").queries.take(taught.anchors), "query")
    expected = []
    for line, query in enumerate(queries):
        rows = [*taught.positives[line], *taught.negatives[line]]
        rows = [row for row in rows if row != PADDING]
        scores = torch.from_numpy(encoder.encode(collection.documents.take(rows), "document") @ query)
        np.testing.assert_allclose(taught.teacher[line][: len(rows)], scores, rtol=1e-4)
        target, student = (scores / 3).log_softmax(0), (scores / 2).log_softmax(0)
        expected.append(float((target.exp() * (target - student)).sum()))
    terms, total = losses.terms[0]
    assert terms["distil"] == pytest.approx(np.mean(expected), rel=1e-3)
    assert total == pytest.approx(terms["query"] + 0.5 * terms["distil"], rel=1e-6)


def test_scores_are_published_with_the_tables_and_follow_the_student(training):
    training.train()
    scores = [open_generation(training.run.generation("a", step), {}).teacher_scores for step in (0, 4)]
    assert [sorted(one) for one in scores] == [["distil"], ["distil"]]
    keys = np.intersect1d(scores[0]["distil"].keys, scores[1]["distil"].keys)
    values = [one["distil"].scores[np.searchsorted(one["distil"].keys, keys)] for one in scores]
    assert len(keys) > 20 and (values[0] != values[1]).any()
    reports = [metric["teachers"]["distil"] for metric in training.metrics("generation")]
    assert reports[0] == {
        "kind": "student",
        "pairs": len(scores[0]["distil"].keys),
        "unscored_pairs": 0,
        "origins": {"student": training.start.weights},
    }
    mined_with = [adoption["weights"] for adoption in training.decisions("adopt")]
    assert [report["origins"]["student"] for report in reports] == mined_with
