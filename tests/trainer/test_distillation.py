"""Terms that learn from a teacher: what it scores, what is published, what the loss makes of it."""

from functools import partial
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import numpy as np
import pytest
import torch
from helpers.language_model import language_model
from helpers.small_set import ONE_STEP
from helpers.stage_fixture import Losses, Training
from huggingface_hub.errors import LocalEntryNotFoundError

from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel, record_text
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder, save_encoder
from pyserini_ance.negatives.snapshot import TEACHER_VECTORS
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.negatives.teachers import cross_encoder
from pyserini_ance.negatives.teachers.llm import PROMPT
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.trainer.batch import plan_batch

DRAW = {"negatives": [{"kind": "ann", "top_k": 8, "num_negatives": 3}], "loss": {"kind": "nll", "scale": 0.1}}
KL = {"kind": "kl", "scale": 0.5, "teacher_temperature": 3.0}
DISTIL = {"negatives_from": "query", "teacher": {"kind": "student"}, "loss": KL, "weight": 0.5}
TERMS = {"query": {**DRAW, "in_batch_negatives": True}, "distil": DISTIL}


def test_the_loss_is_that_of_a_slow_loop(without_dropout, tmp_path):
    training = Training(without_dropout, tmp_path / "run", TERMS, steps=1, refresh={"every_steps": 4})
    losses = Losses()
    training.train(callbacks=[losses])
    data, stage = training.data, training.recipe.stages["a"]
    made = open_generation(training.run.generation("a", 0), data.identity)
    seed, scores = training.recipe.seed, made.teacher_scores
    batch = plan_batch(stage, 0, 0, seed, data.anchor_sets, made.tables, scores)
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
    terms, total = losses.terms[0], losses.totals[0]
    assert terms["distil"] == pytest.approx(np.mean(expected), rel=1e-3)
    assert total == pytest.approx(terms["query"] + 0.5 * terms["distil"], rel=1e-6)


def test_scores_are_published_with_the_tables_and_follow_the_student(small_recipe, tmp_path):
    training = Training(small_recipe, tmp_path / "run", TERMS, steps=6, refresh={"every_steps": 4})
    training.train()
    scores = [open_generation(training.run.generation("a", step), {}).teacher_scores for step in (0, 4)]
    assert [sorted(one) for one in scores] == [["distil"], ["distil"]]
    keys = np.intersect1d(scores[0]["distil"].keys, scores[1]["distil"].keys)
    values = [one["distil"].scores[np.searchsorted(one["distil"].keys, keys)] for one in scores]
    assert len(keys) > 20 and (values[0] != values[1]).any()
    reports = [metric["teachers"]["distil"] for metric in training.metrics("generation")]
    origins, pairs = {"student": training.start.weights}, len(scores[0]["distil"].keys)
    assert reports[0] == {"kind": "student", "pairs": pairs, "unscored_pairs": 0, "origins": origins}
    mined_with = [adoption["weights"] for adoption in training.decisions("adopt")]
    assert [report["origins"]["student"] for report in reports] == mined_with


def training_with(small_recipe, folder, teacher: dict) -> Training:
    distil = {"negatives_from": "query", "teacher": teacher, "loss": {"kind": "margin_mse"}}
    terms = {"query": DRAW, "distil": distil}
    return Training(small_recipe, folder, terms, steps=4, refresh={"every_steps": 2})


def origins_of(training: Training) -> list[dict[str, str]]:
    return [metric["teachers"]["distil"]["origins"] for metric in training.metrics("generation")]


def pairs_of(training: Training, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scores = open_generation(training.run.generation("a", step), {}).teacher_scores["distil"]
    return *np.divmod(scores.keys, scores.width), scores.scores


def texts_of(training: Training, queries: np.ndarray, documents: np.ndarray) -> list[tuple[str, str]]:
    collection = training.data.collection
    texts = collection.split("train").queries.columns["text"]
    pairs = zip(queries.tolist(), documents.tolist(), strict=True)
    return [(texts[query], record_text(collection.documents[row])) for query, row in pairs]


@pytest.mark.parametrize("saved", [False, True])
def test_another_encoder_scores_with_its_own_settings(small_recipe, tmp_path, saved):
    config = training_with(small_recipe, tmp_path / "plain", {"kind": "student"}).recipe.encoder
    settings = config.model_dump(mode="json")
    settings["tokenization"]["document"]["length_tokens"] = 9
    settings["pooling"] = "mean"
    encoder = initial_encoder(type(config).model_validate(settings), 0)
    if saved:
        (tmp_path / "teacher").mkdir()
        save_encoder(encoder, tmp_path / "teacher")
        teacher = {"kind": "encoder", "encoder": str(tmp_path / "teacher")}
    else:
        teacher = {"kind": "encoder", "encoder": settings}
    training = training_with(small_recipe, tmp_path / "run", teacher)
    training.train()
    collection = training.data.collection
    queries = encoder.encode([collection.split("train").queries[row] for row in range(15)], "query")
    documents = encoder.encode(collection.documents.take(range(len(collection.documents))), "document")
    for step in (0, 2):
        rows, others, scores = pairs_of(training, step)
        np.testing.assert_allclose(scores, (queries[rows] * documents[others]).sum(1), rtol=1e-4, atol=1e-5)
    assert list(training.run.scratch.glob(f"{TEACHER_VECTORS}-*"))  # not encoded again at each refresh
    name = f"encoder {tmp_path / 'teacher' if saved else settings['model']}"
    digest = (load_encoder(tmp_path / "teacher") if saved else encoder).digest()
    assert origins_of(training) == [{name: digest}] * 2


def test_a_missing_or_misspelt_teacher_is_found_before_the_data_is_read(small_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absent = Mock(side_effect=LocalEntryNotFoundError("no connection"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", absent)
    Path("runs/empty").mkdir(parents=True)
    config = small_recipe({"a": ONE_STEP}).encoder.model_dump(mode="json")
    cure = "a run with `teachers` trains cross-encoders"
    for teacher, message in (
        ({"kind": "encoder", "encoder": ["a"]}, "expected a folder, or the keys of `encoder:`"),
        ({"kind": "encoder", "encoder": config | {"layer": 3}}, r"encoder\.layer\n  unknown key"),
        ({"kind": "encoder", "encoder": "runs"}, "holds no encoder saved by pyserini_ance"),
        ({"kind": "ranking", "file": "none.trec"}, r"teacher\.file"),
        ({"kind": "cross_encoder", "model": "runs/teacher-1"}, "'runs/teacher-1'.*no such folder"),
        ({"kind": "cross_encoder", "model": "./teacher-1"}, "'./teacher-1'.*no such folder"),
        ({"kind": "cross_encoder", "model": "runs/empty"}, rf"/empty'.*no folder with config.json.*{cure}"),
        ({"kind": "cross_encoder", "model": "nobody/nothing"}, rf"'nobody/nothing'.*or on the hub.*{cure}"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            training_with(small_recipe, tmp_path / "run", teacher)


def test_a_cross_encoder_scores_each_pair_once(small_recipe, tmp_path, tiny_cross_encoder, monkeypatch):
    model, asked = CrossEncoderModel(str(tiny_cross_encoder), "cpu", length_tokens=32), []

    def logits(pairs):
        asked.extend(pairs)
        return model.logits(pairs)

    counting = type("Counting", (), {"logits": staticmethod(logits)})()
    monkeypatch.setattr(cross_encoder, "load_model", lambda *settings: counting)
    teacher = {"kind": "cross_encoder", "model": str(tiny_cross_encoder), "length_tokens": 32}
    training = training_with(small_recipe, tmp_path / "run", teacher)
    training.train()
    scored = set()
    for step in (0, 2):
        rows, others, scores = pairs_of(training, step)
        np.testing.assert_allclose(scores, model.logits(texts_of(training, rows, others)), rtol=0, atol=1e-5)
        scored |= set(zip(rows.tolist(), others.tolist(), strict=True))
    assert len(asked) == len(scored)
    new = [metric["teachers"]["distil"]["new_pairs"] for metric in training.metrics("generation")]
    assert new[0] == len(pairs_of(training, 0)[0]) and 0 < new[1] and sum(new) == len(scored)
    digest = cross_encoder.model_digest(str(tiny_cross_encoder))
    assert origins_of(training) == [{f"cross_encoder {tiny_cross_encoder}": digest}] * 2
    again = training_with(small_recipe, tmp_path / "again", teacher)
    again.train()
    assert len(asked) == len(scored)  # another run finds the scores in the cache
    report = open_generation(again.run.generation("a", 0), {}).report["teachers"]["distil"]
    assert (report["pairs"], report["kind"], report["new_pairs"]) == (new[0], "cross_encoder", 0)


def test_a_cross_encoder_scores_in_the_precision_of_encoding(small_recipe, tmp_path, tiny_cross_encoder):
    teacher = {"kind": "cross_encoder", "model": str(tiny_cross_encoder), "length_tokens": 32}
    found = {}
    for precision in ("fp32", "bf16"):
        in_precision = partial(small_recipe, encoding={"precision": precision})
        training = training_with(in_precision, tmp_path / precision, teacher)
        training.train()
        model = CrossEncoderModel(str(tiny_cross_encoder), "cpu", length_tokens=32, precision=precision)
        rows, others, found[precision] = pairs_of(training, 0)
        expected = model.logits(texts_of(training, rows, others))
        np.testing.assert_allclose(found[precision], expected, rtol=0, atol=1e-5)
    # Neither has found the other's scores in the cache.
    assert not np.intersect1d(found["fp32"], found["bf16"]).size


def test_a_judge_grades_each_pair_once_through_all_refreshes(small_recipe, tmp_path):
    with language_model(lambda text, count: str(len(text) % 4)) as model:
        teacher = {"kind": "llm", "url": model.url, "model": "judge"}
        training = training_with(small_recipe, tmp_path / "run", teacher)
        training.train()
    pairs = set()
    for step in (0, 2):
        rows, others, scores = pairs_of(training, step)
        for (query, document), score in zip(texts_of(training, rows, others), scores, strict=True):
            filled = PROMPT.replace("{query}", query).replace("{document}", " ".join(document.split()))
            assert score == len(filled) % 4
            pairs.add(filled)
    assert set(model.asked) == pairs and set(model.asked.values()) == {1}
    reports = [metric["teachers"]["distil"] for metric in training.metrics("generation")]
    assert [report["kind"] for report in reports] == ["llm", "llm"] and reports[1]["new_pairs"] > 0
    assert sum(report["new_pairs"] for report in reports) == len(pairs)
    assert [list(report["origins"]) for report in reports] == [["llm judge"]] * 2
