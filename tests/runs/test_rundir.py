import json
import os
from pathlib import Path

import pytest
from helpers.elsewhere import elsewhere

from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.runs.rundir import LAYOUT, RunDir, load_recipe
from pyserini_ance.storage.files import beside, write_json
from pyserini_ance.storage.locks import LockHeld


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create("name: a\n")
    return made


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("pyserini_ance.storage.role.PATIENCE_SECONDS", 0.05)


def held_elsewhere(run: RunDir, role: str):
    imports = "from pyserini_ance.runs.rundir import RunDir"
    return elsewhere(imports, f"RunDir(Path(sys.argv[1])).{role}.held('encode')", run.folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def start(run: RunDir, name: str) -> None:
    """As a training does that replaces the run."""
    with run.trainer.held():
        run.create(f"name: {name}\n", overwrite=True)


def resume(run: RunDir) -> None:
    with run.trainer.held():
        run.reopen()


def test_a_new_run_says_what_it_is(tmp_path):
    run = RunDir(tmp_path)  # an empty folder is used
    with run.trainer.held():
        run.create("name: a\n")
        state = run.read_state()
        assert (state["status"], state["where"], state["pid"]) == ("running", "preparing", os.getpid())
        assert run.describe() == "a run that is running at preparing"
        run.trainer.mark("running", "step 1")
    assert run.describe() == "a finished run" and run.recipe.read_text() == "name: a\n"
    assert names(tmp_path) == ["recipe.yaml", "state.json"]


def test_vectors_that_were_made_for_a_new_run_stay(tmp_path):
    run = RunDir(tmp_path)
    (run.scratch / "0-fp32").mkdir(parents=True)
    run.create("name: a\n")
    assert names(run.scratch) == ["0-fp32"]
    start(run, "b")
    assert not run.scratch.exists()


def test_a_process_that_was_killed_before_the_start_leaves_an_empty_folder(tmp_path):
    run = RunDir(tmp_path)
    for kind in ("held", "writing", "unfinished"):
        beside(run.state, kind).touch()
    with run.trainer.held():
        run.create("name: x\n")
    assert names(tmp_path) == ["recipe.yaml", "state.json"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("stopped", r"a run that stopped at step 9\. Continue it, or .* with resume \(--resume\)"),
        ("running", r"a run that died at step 9\. Continue it, or"),
        ("finished", r"a finished run\. Continue it, or repeat its final evaluation, with resume"),
        (None, r"holds other files\. Pass another output \(--output\)\.$"),
    ],
)
def test_what_a_folder_holds_is_described_with_cures_that_work(run, status, message):
    if status:
        run.trainer.mark(status, "step 9")
    else:
        run.state.unlink()
    with pytest.raises(FileExistsError, match=message):
        RunDir(run.folder).create("name: b\n")
    assert run.recipe.read_text() == "name: a\n"


def test_overwrite_replaces_a_whole_run_and_nothing_else(run, tmp_path, monkeypatch):
    (run.folder / "left").write_text("over")
    (run.checkpoints / "ance-00000001").mkdir(parents=True)
    start(RunDir(run.folder), "b")
    assert run.recipe.read_text() == "name: b\n" and names(run.folder) == ["recipe.yaml", "state.json"]
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match=r"is not a run directory \(no state.json\)"):
        RunDir(tmp_path).create("name: a\n", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "precious"
    run.checkpoints.mkdir()
    monkeypatch.setattr("pyserini_ance.runs.rundir.remove", lambda path: None)  # as when NFS cannot
    with pytest.raises(OSError, match="checkpoints could not be removed; stop the process"):
        start(RunDir(run.folder), "c")
    assert not run.recipe.exists()


def test_a_run_that_is_trained_is_neither_overwritten_nor_resumed(run):
    with held_elsewhere(run, "trainer") as process:
        for attempt in (lambda: start(RunDir(run.folder), "b"), lambda: resume(RunDir(run.folder))):
            with pytest.raises(LockHeld, match=rf"run \(state.json\) is in use by process {process.pid} on"):
                attempt()
        assert run.describe() == "a run that is running at encode"
        with pytest.raises(
            FileExistsError, match=r"is running at encode\. Pass another output \(--output\)\.$"
        ):
            RunDir(run.folder).create("name: b\n")
    assert run.recipe.read_text() == "name: a\n" and run.describe() == "a run that died at encode"
    resume(run)


def test_a_run_with_a_living_refresher_is_resumed_and_not_cleared(run):
    run.trainer.mark("stopped", "stage ance, step 100")
    with held_elsewhere(run, "refresher") as process:
        with pytest.raises(LockHeld, match=rf"\(refresher.json\) is in use by process {process.pid} on"):
            start(RunDir(run.folder), "b")
        assert run.describe() == "a run that stopped at stage ance, step 100"
        resume(run)


def test_resuming_keeps_where_the_run_stopped_and_removes_what_killed_processes_left(run):
    run.trainer.mark("failed", "stage ance, step 100", reason="disk full")
    run.error.write_text("Traceback")
    checkpoint = run.checkpoint("ance", 2)
    beside(checkpoint, "unfinished").mkdir(parents=True)
    for of, kind in ((checkpoint, "writing"), (run.metrics, "writing"), (run.metrics, "unfinished")):
        beside(of, kind).touch()
    with run.trainer.held():
        run.reopen()
        state = run.read_state()
        assert (state["status"], state["where"]) == ("running", "stage ance, step 100")
        assert "reason" not in state
    assert names(run.folder) == ["checkpoints", "recipe.yaml", "state.json"]
    assert names(run.checkpoints) == []


def test_a_run_of_another_layout_gives_one_error_however_it_is_opened(run):
    """Its recipe has old keys, each of which would be an error of its own."""
    run.recipe.write_text("about: a run of long ago\nkeep: {checkpoints: 2}\n")
    write_json(run.measures, {})
    run.state.write_text(json.dumps({**run.read_state(), "layout": 3}))
    attempts = [run.reopen, run.read_state, run.read_recipe, run.read_final_evaluation]
    attempts += [lambda: load_recipe(run.recipe, "seed=1"), lambda: read_results(run.folder)]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match=rf"has layout 3, this version reads layout {LAYOUT}; train"):
            attempt()
    start(run, "b")
    assert run.read_state()["layout"] == LAYOUT


def test_the_commands_of_a_run_name_the_folder_that_it_is_in(tmp_path):
    old, new = tmp_path / "old", RunDir(tmp_path / "moved here")
    new.folder.mkdir()
    command = f"cat {old}/a {old}-b/a\ncat {old}/b"
    write_json(new.measures, {"export": {"folder": str(old), "command": command}})
    assert new.read_measures()["export"]["command"] == f"cat '{new.folder}/a' {old}-b/a\ncat '{new.folder}/b'"
