import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.run_outcome import outcome
from helpers.stages import make_stage
from helpers.waiting import until
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, CLIPConfig

from pyserini_ance.data.collection import Qrels, Split, Texts
from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.negatives.teachers.cross_encoder import model_digest
from pyserini_ance.pipeline import experiment, teacher_training
from pyserini_ance.pipeline.data_checks import check_before_reading
from pyserini_ance.pipeline.teacher_training import ABOUT, MinedLists, train_teacher
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.trained_teacher import TrainedTeacher
from pyserini_ance.reports.ranking_inputs import collection_of
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import beside, read_json, read_json_lines
from pyserini_ance.storage.locks import is_held

FEW = {"negatives": [{"kind": "ann", "top_k": 8}], "num_negatives": 3}
FEW |= {"batch_queries": 2, "steps": 3, "learning_rate": 1e-3}
TEACHERS = {"first": {"after": "warm", **FEW}, "second": {"after": "taught", **FEW}}
TEACHERS["second"]["init_from"] = "teachers.first"
WARM = make_stage(steps=3, terms={"query": {"in_batch_negatives": True}})


def taught_by(name: str) -> dict:
    """A stage that follows a cross-encoder, and leaves out what it finds relevant."""
    teacher = {"kind": "cross_encoder", "model": f"teachers.{name}"}
    left_out = {"kind": "teacher", "teacher": teacher, "margin": 0.0}
    ann = {"kind": "ann", "top_k": 8, "num_negatives": 3}
    negatives = {**ann, "filters": [left_out]}
    terms = {"query": {"negatives": [negatives], "teacher": teacher, "loss": {"kind": "kl"}}}
    return make_stage(steps=2, refresh={"every_steps": 2}, terms=terms)


STAGES = {"warm": WARM, "taught": taught_by("first"), "again": taught_by("second")}


@pytest.fixture(scope="module")
def recipe(small_recipe) -> Recipe:
    return small_recipe(STAGES, teachers=TEACHERS)


def run_of(recipe: Recipe, folder: Path, resume: bool = False, python: Sequence[str] = ()) -> None:
    if python:  # starts the subprocess, instead of a new interpreter: fixture `forked_python`
        teacher_training.COMMAND = [*python, *teacher_training.COMMAND[-2:]]
    experiment.train(recipe, folder, resume=resume)


@pytest.fixture(scope="module")
def run(recipe, run_processes, forked_python, tmp_path_factory) -> RunDir:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_processes(1, run_of, recipe, folder, False, forked_python, join=False)
    return RunDir(folder)


def lists_of(run: RunDir) -> MinedLists:
    """What the first teacher was mined."""
    collection, last = collection_of(run), open_generation(run.generation("first", 0), {})
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

    split = Split("train", Texts(["a", "b"], {"text": ["?", "!"]}), Qrels.of([0, 0], [3, 5], [1, 1], 2))
    tables = (table([[3, 7, 8], [7, 8, 9]]), table([[6, PADDING], [8, 4]], [[0, 5], [0, 8], [1, 9]]))
    left = MinedLists(lists.collection, split, [table([[3, 7], [9, PADDING]], [[1, 9]])], {})
    assert left.queries.tolist() == [0]  # a query without a candidate has no list
    found = MinedLists(lists.collection, split, tables, {})
    assert [found.split.qrels.relevant(query).tolist() for query in (0, 1)] == [[3, 5, 8], [9]]
    assert [found.candidates(query).tolist() for query in (0, 1)] == [[6, 7], [4, 7, 8]]
    for query, (positive, *negatives) in found.draw(20, 3, seed=1):
        assert positive in found.split.qrels.relevant(query)
        assert set(negatives) == set(found.candidates(query).tolist())


def margin(run: RunDir, lists: MinedLists, model: str) -> float:
    """The mean difference between the logits of positives and negatives."""
    scored = CrossEncoderModel(model, "cpu")
    differences = []
    for query, documents in lists.draw(15, 4, seed=3):
        text, (positive, *negatives) = lists.texts(query, documents)
        logits = scored.logits([(text, document) for document in (positive, *negatives)])
        differences.append(float(logits[0] - logits[1:].mean()))
    return float(np.mean(differences))


def settings_of(steps: int, size: int, learning_rate: float) -> TrainedTeacher:
    """`size` queries in a step, each with `size` negatives."""
    sizes = {"steps": steps, "batch_queries": size, "num_negatives": size, "learning_rate": learning_rate}
    return TrainedTeacher(after="warm", negatives=[{"kind": "ann"}], **sizes)


def train_by(folder: Path, output: Path, settings: TrainedTeacher, source: str | None = None) -> float:
    # The fixture's processes have torchrun's environment, in which transformers' Trainer would use DDP.
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    run = RunDir(folder)
    lists = lists_of(run)
    start = source or str(run.checkpoint("initial", 0) / "encoder")
    train_teacher(lists, start, settings, run.read_recipe(), "cpu", output)
    return margin(run, lists, str(output))


def margins(folder: Path, output: Path) -> dict[str, float]:
    """After one step that changes nothing, and after many."""
    steps = {"few": settings_of(1, 4, 1e-9), "many": settings_of(120, 4, 1e-3)}
    return {name: train_by(folder, output / name, settings) for name, settings in steps.items()}


def test_positives_rise_above_negatives(run, run_processes, tmp_path):
    [found] = run_processes(1, margins, run.folder, tmp_path, join=False)
    assert found["many"] > found["few"] + 0.5


def train_counted(folder: Path, output: Path, settings: TrainedTeacher, dies_at: int) -> list[int]:
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
    """Twenty steps, every second of them saved; one checkpoint was being written when the process died. A
    training of other settings has left its own, which are removed."""
    whole, killed, settings = tmp_path / "whole", tmp_path / "killed", settings_of(20, 4, 1e-3)
    assert run_processes(1, train_counted, run.folder, whole, settings, 0, join=False) == [list(range(1, 21))]
    for given, dies_at in ((settings_of(4, 2, 1e-3), 3), (settings, 1), (settings, 9)):
        (end,) = run_processes.ends(1, train_counted, run.folder, killed, given, dies_at, join=False)
        assert end["code"] == -signal.SIGKILL and not killed.exists()
    (kept,) = {path.parent for path in (tmp_path / ".killed.training").glob("*/checkpoint-*")}
    assert [path.name for path in kept.iterdir()] == ["checkpoint-8"]
    (kept / "checkpoint-10").mkdir()
    (kept / "checkpoint-10" / "trainer_state.json").write_text("{")
    steps = run_processes(1, train_counted, run.folder, killed, settings, 0, join=False)
    assert steps == [list(range(9, 21))]
    assert model_digest(str(killed)) == model_digest(str(whole))
    assert not (tmp_path / ".killed.training").exists()


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
    given = run.folder, tmp_path / "out", settings_of(1, 2, 1e-3), str(tmp_path)
    (end,) = run_processes.ends(1, train_by, *given, join=False)
    assert "lacks 16 weights of a BertForSequenceClassification, such as bert.encoder" in end["error"]


def test_a_model_that_is_no_cross_encoder_is_refused_before_the_data_is_read(tmp_path, tiny_bert):
    """From its configuration alone: training gets there after a whole stage."""
    two = BertForSequenceClassification(BertConfig.from_pretrained(tiny_bert, num_labels=2))
    two.save_pretrained(tmp_path)
    start = f"teachers.ranker-1.init_from={tmp_path}"
    with pytest.raises(ValueError, match="gives 2 scores per pair, not one"):
        check_before_reading(load("demo/ar2", start))
    CLIPConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a clip, which cannot score pairs; start from another"):
        check_before_reading(load("demo/ar2", start))


def test_retriever_and_cross_encoder_take_turns(run, tmp_path):
    """Each cross-encoder learns from what the stage before has found, from the start that the recipe names;
    each stage's scores are traced to the files of its own."""
    after, digests = {"first": "warm", "second": "taught"}, {}
    ends = {r["stage"]: r for r in read_json_lines(run.decisions) if r["event"] == "stage_end"}
    for name, start in (("first", "initial"), ("second", "teachers.first")):
        generation = open_generation(run.generation(name, 0), {})
        assert generation.weights == ends[after[name]]["weights"]
        assert all(table.counts.min() > 0 for table in generation.tables.values())
        about = read_json(run.teachers / name / ABOUT)
        assert (about["start"], about["generations"]) == (start, {f"{name}-00000000": generation.weights})
        settings = about["settings"]
        assert (settings["length_tokens"], settings["seed"]) == (24 + 32, run.read_recipe().seed)
        digests[name] = model_digest(str(run.teachers / name))
    assert digests["first"] != digests["second"]
    for stage, name in (("taught", "first"), ("again", "second")):
        report = open_generation(run.generation(stage, 0), {}).report
        assert report["teachers"]["query"]["origins"] == {f"cross_encoder {name}": digests[name]}
        assert report["tables"]["query.0"]["judged_by"] == {f"cross_encoder {name}": digests[name]}
    seconds = [record for record in read_json_lines(run.metrics) if record["event"] == "teacher"]
    assert [record["teacher"] for record in seconds] == ["first", "second"]
    assert Checkpoint.open(run.checkpoints / ends["again"]["result"]).weights != ends["taught"]["weights"]


def killed_while_a_teacher_trains(recipe: Recipe, folder: Path, name: str, resume: bool, python) -> None:
    def kill() -> None:
        unfinished = beside(folder / "teachers" / name, "unfinished")
        while not (RunDir(folder).generation(name, 0).exists() and unfinished.exists()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    run_of(recipe, folder, resume, python)


def test_a_run_killed_while_a_teacher_trains_resumes(run, recipe, run_processes, forked_python, tmp_path):
    folder = tmp_path / "run"
    for name, resume in (("first", False), ("second", True)):
        given = (recipe, folder, name, resume, forked_python)
        (end,) = run_processes.ends(1, killed_while_a_teacher_trains, *given, join=False)
        assert end["code"] == -signal.SIGKILL
        lock = beside(folder / "teachers" / name, "writing")
        assert lock.exists()
        until(lambda lock=lock: not is_held(lock))
        assert not (folder / "teachers" / name).exists()
    run_processes(1, run_of, recipe, folder, True, forked_python, join=False)
    assert outcome(folder) == outcome(run.folder)


def test_two_processes_train_a_teacher_once(small_recipe, run_processes, tmp_path):
    """The cross-encoder is trained by a new interpreter, as the command starts it."""
    few = {name: STAGES[name] for name in ("warm", "taught")}
    recipe = small_recipe(few, teachers={"first": TEACHERS["first"]})
    run_processes(2, run_of, recipe, tmp_path / "run", join=False)
    run = RunDir(tmp_path / "run")
    assert [path.name for path in run.teachers.iterdir()] == ["first"]
    report = open_generation(run.generation("taught", 0), {}).report
    digest = model_digest(str(run.teachers / "first"))
    assert report["teachers"]["query"]["origins"] == {"cross_encoder first": digest}


def test_a_teacher_that_cannot_be_trained_ends_the_run(small_recipe, run_processes, forked_python, tmp_path):
    recipe = small_recipe({"warm": WARM}, teachers={"first": {"after": "warm", **FEW, "learning_rate": 1e38}})
    (end,) = run_processes.ends(1, run_of, recipe, tmp_path / "run", False, forked_python, join=False)
    assert "teachers.first could not be trained: the teacher's mean loss is nan" in end["error"]
    assert "lower its learning rate" in (tmp_path / "run" / "error.txt").read_text()
    assert read_json(tmp_path / "run" / "state.json")["needs_new_recipe"]
    assert not any((tmp_path / "run" / "teachers").iterdir())
