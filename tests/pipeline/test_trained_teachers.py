import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.run_outcome import outcome
from helpers.stages import make_stage
from helpers.waiting import until

from pyserini_ance.negatives.teachers.cross_encoder import model_digest
from pyserini_ance.pipeline import experiment, trained_teachers
from pyserini_ance.pipeline.teacher_training import ABOUT
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import beside, read_json, read_json_lines
from pyserini_ance.storage.locks import is_held

FEW = {
    "negatives": [{"kind": "ann", "top_k": 8}],
    "batch_queries": 2,
    "num_negatives": 3,
    "steps": 3,
    "learning_rate": 1e-3,
}
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


def train_teachers_by(python: Sequence[str]) -> None:
    """Let `python` start the subprocess, instead of a new interpreter: fixture `forked_python`."""
    trained_teachers.teacher_command = lambda: [*python, "-m", trained_teachers.MODULE]


def run_of(recipe: Recipe, folder: Path, resume: bool = False, python: Sequence[str] = ()) -> None:
    if python:
        train_teachers_by(python)
    experiment.train(recipe, folder, resume=resume)


@pytest.fixture(scope="module")
def run(recipe, run_processes, forked_python, tmp_path_factory) -> RunDir:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_processes(1, run_of, recipe, folder, False, forked_python, join=False)
    return RunDir(folder)


def test_retriever_and_cross_encoder_take_turns(run, tmp_path):
    """Each cross-encoder learns from what the stage before has found, from the start that the recipe names;
    each stage's scores are traced to the files of its own."""
    after, digests = {"first": "warm", "second": "taught"}, {}
    ends = {r["stage"]: r for r in read_json_lines(run.decisions) if r["event"] == "stage_end"}
    for name, start in (("first", "initial"), ("second", "teachers.first")):
        generation = open_generation(run.generation(name, 0), {})
        assert generation.weights == ends[after[name]]["weights"]
        assert all(table.counts.min() > 0 for table in generation.tables.values())
        about = read_json(run.teacher(name) / ABOUT)
        assert (about["start"], about["generations"]) == (start, {f"{name}-00000000": generation.weights})
        settings = about["settings"]
        assert (settings["length_tokens"], settings["seed"]) == (24 + 32, run.read_recipe().seed)
        digests[name] = model_digest(str(run.teacher(name)))
    assert digests["first"] != digests["second"]
    for stage, name in (("taught", "first"), ("again", "second")):
        report = open_generation(run.generation(stage, 0), {}).report
        assert report["teachers"]["query"]["origins"] == {f"cross_encoder {name}": digests[name]}
        assert report["tables"]["query.0"]["judged_by"] == {f"cross_encoder {name}": digests[name]}
    seconds = [record for record in read_json_lines(run.metrics) if record["event"] == "teacher"]
    assert [record["teacher"] for record in seconds] == ["first", "second"]
    assert Checkpoint.open(run.checkpoints / ends["again"]["result"]).weights != ends["taught"]["weights"]


def killed_while_a_teacher_trains(
    recipe: Recipe, folder: Path, name: str, resume: bool, python: Sequence[str]
) -> None:
    def kill() -> None:
        unfinished = beside(folder / "teachers" / name, "unfinished")
        while not (RunDir(folder).generation(name, 0).exists() and unfinished.exists()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    run_of(recipe, folder, resume, python)


def test_a_run_that_is_killed_while_a_teacher_trains_resumes_to_the_same(
    run, recipe, run_processes, forked_python, tmp_path
):
    folder = tmp_path / "run"
    for name, resume in (("first", False), ("second", True)):
        (end,) = run_processes.ends(
            1, killed_while_a_teacher_trains, recipe, folder, name, resume, forked_python, join=False
        )
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
    digest = model_digest(str(run.teacher("first")))
    assert report["teachers"]["query"]["origins"] == {"cross_encoder first": digest}


def test_a_teacher_that_cannot_be_trained_ends_the_run(small_recipe, run_processes, forked_python, tmp_path):
    wild = {"first": {"after": "warm", **FEW, "learning_rate": 1e38}}
    recipe = small_recipe({"warm": WARM}, teachers=wild)
    (end,) = run_processes.ends(1, run_of, recipe, tmp_path / "run", False, forked_python, join=False)
    assert (
        "teachers.first could not be trained: the teacher's mean loss is nan; lower its learning"
        in end["error"]
    )
    assert "lower its learning rate" in (tmp_path / "run" / "error.txt").read_text()
    assert not any((tmp_path / "run" / "teachers").iterdir())
