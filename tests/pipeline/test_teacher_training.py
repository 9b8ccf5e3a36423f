import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.stages import make_stage
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, CLIPConfig

from pyserini_ance.data.collection import Qrels, Split, Texts
from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.negatives.teachers.cross_encoder import model_digest
from pyserini_ance.pipeline import experiment, teacher_training
from pyserini_ance.pipeline.data_checks import check_before_reading
from pyserini_ance.pipeline.teacher_training import MinedLists, TeacherSettings, train_teacher
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.reports.ranking_inputs import collection_of
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir

ANN = {"kind": "ann", "top_k": 8, "num_negatives": 3}


def train(recipe: Recipe, folder: Path) -> None:
    experiment.train(recipe, folder)


@pytest.fixture(scope="module")
def run(small_recipe, run_processes, tmp_path_factory) -> RunDir:
    """A finished run; its two generations are those before steps 0 and 2."""
    folder, every = tmp_path_factory.mktemp("runs") / "run", {"every_steps": 2}
    stage = make_stage(refresh=every, evaluate=every, terms={"query": {"negatives": [ANN]}})
    run_processes(1, train, small_recipe({"ance": stage}), folder, join=False)
    return RunDir(folder)


def lists_of(run: RunDir) -> MinedLists:
    collection, last = collection_of(run), open_generation(run.generation("ance", 2), {})
    weights = {last.folder.name: last.weights}
    return MinedLists(collection, collection.split("train"), list(last.tables.values()), weights)


@pytest.fixture(scope="module")
def lists(run) -> MinedLists:
    return lists_of(run)


def test_a_list_has_a_positive_and_different_mined_negatives(lists):
    relevant = {query: set(lists.split.qrels.relevant(query).tolist()) for query in range(15)}
    drawn = list(lists.draw(45, 3, seed=7))
    for query, documents in drawn:
        positive, *negatives = documents.tolist()
        assert positive in relevant[query] and not relevant[query] & set(negatives)
        assert len(set(negatives)) == 3 and set(negatives) <= set(lists.candidates(query).tolist())
    orders = [[query for query, _ in drawn[start : start + 15]] for start in (0, 15, 30)]
    assert all(sorted(order) == list(range(15)) for order in orders) and orders[0] != orders[1]
    again = [(query, documents.tolist()) for query, documents in lists.draw(45, 3, seed=7)]
    assert again == [(query, documents.tolist()) for query, documents in drawn]
    assert again != [(query, documents.tolist()) for query, documents in lists.draw(45, 3, seed=8)]


def test_positives_of_all_kinds_are_no_negatives(lists):
    """A document that a filter promoted is one, though another table lists it; so is a judged one that
    training does not know (`positives: last`), and the answer of a query without judgments."""

    def table(candidates: list[list[int]], promoted: list[list[int]] | None = None) -> NegativeTable:
        anchors, rows = np.array([0, 1], np.int32), np.array(candidates, np.int32)
        pairs = None if promoted is None else np.array(promoted, np.int32)
        scores = np.zeros(rows.shape, np.float32)
        return NegativeTable("query", "document", anchors, rows, scores, "ann", promoted=pairs)

    texts = Texts(["a", "b"], {"text": ["?", "!"]})
    split = Split("train", texts, Qrels.of([0, 0], [3, 5], [1, 1], 2))
    tables = (table([[3, 7, 8], [7, 8, 9]]), table([[6, PADDING], [8, 4]], [[0, 5], [0, 8], [1, 9]]))
    left = MinedLists(lists.collection, split, [table([[3, 7], [9, PADDING]], [[1, 9]])], {})
    assert left.queries.tolist() == [0]  # a query without a candidate has no list
    found = MinedLists(lists.collection, split, tables, {})
    assert [found.split.qrels.relevant(query).tolist() for query in (0, 1)] == [[3, 5, 8], [9]]
    assert [found.candidates(query).tolist() for query in (0, 1)] == [[6, 7], [4, 7, 8]]
    for query, (positive, *negatives) in found.draw(20, 3, seed=1):
        assert positive in found.split.qrels.relevant(query)
        assert set(negatives) == set(found.candidates(query).tolist())


def without_torchrun() -> None:
    """The fixture's processes have torchrun's environment, in which transformers' Trainer would use DDP."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)


def margin(run: RunDir, lists: MinedLists, model: str) -> float:
    """The mean difference between the logits of positives and negatives."""
    scored = CrossEncoderModel(model, "cpu")
    differences = []
    for query, documents in lists.draw(15, 4, seed=3):
        text, (positive, *negatives) = lists.texts(query, documents)
        logits = scored.logits([(text, document) for document in (positive, *negatives)])
        differences.append(float(logits[0] - logits[1:].mean()))
    return float(np.mean(differences))


def settings_of(steps: int, size: int, learning_rate: float) -> TeacherSettings:
    """`size` queries in a step, each with `size` negatives."""
    return TeacherSettings(
        steps=steps, batch_queries=size, num_negatives=size, learning_rate=learning_rate, length_tokens=56
    )


def train_by(folder: Path, output: Path, settings: TeacherSettings, source: str | None = None) -> float:
    without_torchrun()
    run = RunDir(folder)
    lists = lists_of(run)
    start = source or str(run.checkpoint("initial", 0) / "encoder")
    train_teacher(lists, start, settings, "cpu", output, {})
    return margin(run, lists, str(output))


def margins(folder: Path, output: Path) -> dict[str, float]:
    """After one step that changes nothing, and after many."""
    steps = {"few": settings_of(1, 4, 1e-9), "many": settings_of(120, 4, 1e-3)}
    return {name: train_by(folder, output / name, settings) for name, settings in steps.items()}


def test_positives_rise_above_negatives(run, run_processes, tmp_path):
    [found] = run_processes(1, margins, run.folder, tmp_path, join=False)
    assert found["many"] > found["few"] + 0.5


def train_counted(folder: Path, output: Path, settings: TeacherSettings, dies_at: int) -> list[int]:
    """The steps that are trained; the process is killed at the end of step `dies_at`."""
    steps, make_callback = [], teacher_training._callback

    def counting_callback(bar):
        class Counting(type(make_callback(bar))):
            def on_step_end(self, arguments, state, control, **more):
                steps.append(state.global_step)
                if state.global_step == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                super().on_step_end(arguments, state, control, **more)

        return Counting()

    teacher_training._callback = counting_callback
    train_by(folder, output, settings)
    return steps


def test_a_killed_training_continues_to_the_same_weights(run, run_processes, tmp_path):
    """Twenty steps, every second of them saved; one checkpoint was being written when the process died."""
    whole, killed, settings = tmp_path / "whole", tmp_path / "killed", settings_of(20, 4, 1e-3)
    assert run_processes(1, train_counted, run.folder, whole, settings, 0, join=False) == [list(range(1, 21))]
    for dies_at in (1, 9):
        (end,) = run_processes.ends(1, train_counted, run.folder, killed, settings, dies_at, join=False)
        assert end["code"] == -signal.SIGKILL and not killed.exists()
    (kept,) = {path.parent for path in (tmp_path / ".killed.training").glob("*/checkpoint-*")}
    assert [path.name for path in kept.iterdir()] == ["checkpoint-8"]
    (kept / "checkpoint-10").mkdir()
    (kept / "checkpoint-10" / "trainer_state.json").write_text("{")
    steps = run_processes(1, train_counted, run.folder, killed, settings, 0, join=False)
    assert steps == [list(range(9, 21))]
    assert model_digest(str(killed)) == model_digest(str(whole))
    assert not (tmp_path / ".killed.training").exists()


def test_a_training_of_other_settings_begins_anew(run, run_processes, tmp_path):
    output, first, second = tmp_path / "out", settings_of(4, 2, 1e-3), settings_of(4, 2, 1e-4)
    run_processes.ends(1, train_counted, run.folder, output, first, 3, join=False)
    assert run_processes(1, train_counted, run.folder, output, second, 0, join=False) == [[1, 2, 3, 4]]


def test_a_cross_encoder_is_trained_further(run, run_processes, tmp_path, tiny_cross_encoder):
    """A learning rate of nearly nothing leaves its weights, head included."""
    settings = settings_of(1, 2, 1e-12)
    run_processes(1, train_by, run.folder, tmp_path / "more", settings, str(tiny_cross_encoder), join=False)
    old, new = (load_file(folder / "model.safetensors") for folder in (tiny_cross_encoder, tmp_path / "more"))
    assert old.keys() == new.keys()
    for name, weight in old.items():
        torch.testing.assert_close(new[name], weight, atol=1e-8, rtol=0)


def test_weights_of_another_model_are_refused(run, run_processes, tmp_path, tiny_bert):
    """Transformers would draw a missing layer, with a warning."""
    for path in tiny_bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = {name: weight for name, weight in load_file(tiny_bert / "model.safetensors").items()
               if "layer.1." not in name}  # fmt: skip
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    settings = settings_of(1, 2, 1e-3)
    (end,) = run_processes.ends(
        1, train_by, run.folder, tmp_path / "out", settings, str(tmp_path), join=False
    )
    assert (
        "lacks 16 weights of a BertForSequenceClassification, such as bert.encoder.layer.1." in end["error"]
    )


def test_a_model_that_is_no_cross_encoder_is_refused_before_the_data_is_read(tmp_path, tiny_bert):
    """From its configuration alone: training gets there after a whole stage."""
    two = BertForSequenceClassification(BertConfig.from_pretrained(tiny_bert, num_labels=2))
    two.save_pretrained(tmp_path)
    start = f"teachers.ranker-1.init_from={tmp_path}"
    with pytest.raises(ValueError, match="gives 2 scores per pair, expected one"):
        check_before_reading(load("demo/ar2", start).recipe)
    CLIPConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a clip, which cannot score pairs; start from another"):
        check_before_reading(load("demo/ar2", start).recipe)
