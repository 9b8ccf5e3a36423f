"""The refresher that training starts: whether, how, and how it ends. Small programs stand in for it."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from pyserini_ance.experiment import child
from pyserini_ance.experiment.child import command_of, environment_of, needs_refresher, refresh_command, refresher_beside
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe, RefresherProcess
from pyserini_ance.runs.rundir import RunDir

ANN = {"query": {"negatives": [{"kind": "ann"}]}}
STAGE = {"steps": 20, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}, "terms": ANN, "refresh": {"every_steps": 5}}
BACKGROUND = {**STAGE, "refresh": {"every_steps": 5, "run": "background"}}
SAYS = "import os, sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), *sys.argv[1:], flush=True); "


def recipe(*stages: dict, **refresher) -> Recipe:
    settings = {"name": "r", "data": {"kind": "docstrings"}, "encoder": {"kind": "transformer", "model": "m"}, "bm25": None}
    return Recipe.model_validate({**settings, "stages": {f"s{i}": made for i, made in enumerate(stages)}, "refresher": refresher})


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path)
    made.recipe.write_text(dump(recipe(BACKGROUND)))
    return made


@pytest.fixture
def program(monkeypatch):
    """Let a program be the child."""
    return lambda text: monkeypatch.setattr(child, "command_of", lambda recipe, run: [sys.executable, "-c", SAYS + text, "a", "b"])


@pytest.mark.parametrize(
    ("stages", "needed"),
    [
        ([STAGE], False),
        ([BACKGROUND], True),
        ([STAGE, BACKGROUND], True),
        ([{**STAGE, "evaluate": {"every_steps": 5}}], False),
        ([{**STAGE, "evaluate": {"every_steps": 5, "run": "background"}}], True),
        ([{**BACKGROUND, "evaluate": {"every_steps": 5, "run": "inline"}}], True),
    ],
)
def test_a_refresher_is_needed_where_something_is_made_in_the_background(stages, needed):
    assert needs_refresher(recipe(*stages)) is needed


def test_the_command_is_of_the_run_s_recipe_and_of_what_this_call_sets_otherwise(run):
    ours = ["-m", "pyserini_ance.refresh", f"{run.folder}/recipe.yaml"]
    assert command_of(recipe(BACKGROUND), run) == [sys.executable, *ours, "--output", str(run.folder)]
    changed = recipe(BACKGROUND, processes=3, device="cuda:1").model_copy(update={"cache": Path("/my cache"), "threads": 2})
    overrides = ["cache=/my cache", "threads=2", "refresher.device=cuda:1", "refresher.processes=3"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    command = command_of(changed, run)
    assert command[: 1 + len(launcher) + len(ours)] == [sys.executable, *launcher, *ours]
    assert sorted(command[1 + len(launcher) + len(ours) : -2]) == sorted(overrides) and command[-2:] == ["--output", str(run.folder)]
    assert "'cache=/my cache'" in refresh_command(changed, run)


def test_the_child_is_no_part_of_the_trainings_world(monkeypatch):
    world = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    more = {"GROUP_RANK": "0", "ROLE_RANK": "0", "ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}
    for name, value in {**world, **more, "OMP_NUM_THREADS": "1", "PYTHONPATH": "somewhere"}.items():
        monkeypatch.setenv(name, value)
    kept = environment_of(RefresherProcess())
    assert not {*world, *more} & kept.keys()
    assert (kept["OMP_NUM_THREADS"], kept["PYTHONPATH"]) == ("1", "somewhere") and kept.keys() <= os.environ.keys()
    assert environment_of(RefresherProcess(threads=3)) == {**kept, "OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize("made", [recipe(STAGE), recipe(BACKGROUND, start="elsewhere")], ids=["inline", "elsewhere"])
def test_no_child_is_started_where_none_is_wanted(run, made, program):
    program("")
    with refresher_beside(made, run):
        pass
    assert not run.refresher_log.exists()


def test_no_child_is_started_beside_a_refresher_at_work(run, program, caplog):
    program("")
    holder = "import sys; from pathlib import Path; from pyserini_ance.runs.rundir import RunDir\n"
    holder += "with RunDir(Path(sys.argv[1])).refresher.hold('tables'): print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", holder, run.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with caplog.at_level("INFO"), refresher_beside(recipe(BACKGROUND), run):
            pass
        other.stdin.close()
    assert not run.refresher_log.exists()
    (message,) = caplog.messages
    assert message.startswith("a refresher is at work already: ") and f"process {other.pid} " in message


def test_the_child_works_apart_and_leaves_when_the_run_has_finished(run, program, caplog):
    program(f"import pathlib, time\nwhile not pathlib.Path({str(run.folder / 'end')!r}).exists(): time.sleep(0.01)\nprint('left')")
    run.refresher_log.write_text("of an earlier one\n")
    with caplog.at_level("INFO"), refresher_beside(recipe(BACKGROUND), run):
        until(lambda: "a b" in run.refresher_log.read_text())
        (run.folder / "end").touch()
    assert run.refresher_log.read_text() == "of an earlier one\nTrue '' a b\nleft\n"
    assert len(caplog.messages) == 1 and caplog.messages[0].endswith(f"; it writes {run.refresher_log}")


def test_a_child_that_ends_too_early_is_reported_with_the_command_for_another(run, program, caplog):
    program("sys.exit(3)")
    with caplog.at_level("ERROR"), refresher_beside(recipe(BACKGROUND), run):
        until(lambda: caplog.messages)
    assert caplog.messages == [
        f"the refresher has ended (exit code 3, see {run.refresher_log}); training goes on as far as it may without. "
        f"Start another with: {refresh_command(recipe(BACKGROUND), run)}"
    ]


def test_a_child_that_is_ended_with_its_training_is_no_news(run, program, caplog):
    program("import time; time.sleep(60)")
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), caplog.at_level("ERROR"), refresher_beside(recipe(BACKGROUND), run):
        until(lambda: "a b" in run.refresher_log.read_text())
        raise KeyboardInterrupt
    assert time.monotonic() - start < child.LEAVE_SECONDS and caplog.messages == []


def test_a_child_that_does_not_leave_is_killed_in_the_end(run, program, monkeypatch, caplog):
    monkeypatch.setattr(child, "LEAVE_SECONDS", 0.3)
    program("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', os.getpid(), flush=True); time.sleep(60)")
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError), refresher_beside(recipe(BACKGROUND), run):
        until(lambda: "deaf" in run.refresher_log.read_text())
        raise ValueError
    pid = int(run.refresher_log.read_text().split()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert caplog.messages == []
