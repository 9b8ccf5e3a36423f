import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.stages import make_stage
from helpers.waiting import until

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline import refresher_process
from pyserini_ance.pipeline.refresher_process import (
    refresh_command,
    refresher_command,
    refresher_device,
    refresher_subprocess,
    subprocess_environment,
)
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import RefreshRequest
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import AsyncExecutor

STAGE = make_stage({"kind": "ann"}, steps=20, refresh={"every_steps": 5})
WITH_DEV = {**STAGE, "evaluate": {"every_steps": 5}}
ASYNC = {**STAGE, "refresh": {"every_steps": 5, "mode": "async"}}
SAYS = "import os, sys; own = os.getsid(0) == os.getpid()\n"
SAYS += "print(own, repr(sys.stdin.read()), *sys.argv[1:], flush=True); "
# The device and the processes of training on a machine with so many GPUs, and the refresher's device.
DEVICES = [("auto", 1, 0, "auto"), ("auto", 1, 2, "cuda:1"), ("cuda", 8, 8, "cuda:0")]
DEVICES += [("cuda:3", 4, 8, "cuda:7"), ("cuda:4", 4, 8, "cuda:4"), ("cpu", 4, 8, "cpu")]
NOT_NEEDED = [(STAGE, "subprocess"), (WITH_DEV, "subprocess"), (ASYNC, "external")]


def recipe(*stages: dict, refresher: str = "subprocess") -> Recipe:
    """The stages `s0`, `s1`, ... over data that nobody reads."""
    settings = {"name": "r", "data": {"kind": "docstrings"}, "encoder": {"model": "m"}, "bm25": None}
    settings["stages"] = {f"s{i}": made for i, made in enumerate(stages)}
    return Recipe.model_validate({**settings, "refresher": refresher})


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path)
    made.recipe.write_text(dump(recipe(ASYNC)))
    return made


@pytest.fixture
def program(monkeypatch):
    """Let a program be the subprocess."""
    changed = (refresher_process, "refresher_command")
    command = [sys.executable, "-c"]
    return lambda text: monkeypatch.setattr(*changed, lambda *_: [*command, SAYS + text, "a", "b"])


@pytest.mark.parametrize("of_training, local_processes, gpus, device", DEVICES)
def test_the_refresher_takes_a_gpu_left_free(monkeypatch, of_training, local_processes, gpus, device):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_processes))
    assert refresher_device(recipe(ASYNC).model_copy(update={"device": of_training}), gpus) == device


def test_the_command_has_the_recipe_of_the_run_and_the_changed_settings(run):
    arguments = ["-m", "pyserini_ance", "refresh", f"{run.folder}/recipe.yaml"]
    assert refresher_command(recipe(ASYNC), run) == [sys.executable, *arguments, "--output", str(run.folder)]
    changed = recipe(ASYNC).model_copy(update={"cache": Path("/my cache"), "threads": 2, "device": "cuda:1"})
    command = refresher_command(changed, run)
    assert command[: 1 + len(arguments)] == [sys.executable, *arguments]
    assert sorted(command[1 + len(arguments) : -2]) == ["cache=/my cache", "device=cuda:1", "threads=2"]
    assert "'cache=/my cache'" in refresh_command(changed, run)


def test_the_subprocess_does_not_inherit_the_world_of_torchrun(monkeypatch):
    world = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    world += " GROUP_RANK ROLE_RANK ROLE_NAME"
    names = [*world.split(), "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"]
    for name in (*names, "OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    inherited = subprocess_environment(None)
    assert not {*names} & inherited.keys() and inherited["OMP_NUM_THREADS"] == "1"
    assert subprocess_environment(3) == {**inherited, "OMP_NUM_THREADS": "3"}
    monkeypatch.setattr(sys, "path", ["", "/", "a hook of an editable install", "/"])
    assert subprocess_environment(None)["PYTHONPATH"].split(os.pathsep) == [os.getcwd(), "/"]


@pytest.mark.parametrize("stage, refresher", NOT_NEEDED)
def test_no_subprocess_is_started_if_none_is_needed(run, program, stage, refresher):
    program("")
    with refresher_subprocess(recipe(stage, refresher=refresher), run):
        pass
    assert not run.refresher_log.exists()


def test_the_subprocess_has_a_session_of_its_own_and_exits_with_the_run(run, program):
    ended = f"pathlib.Path({str(run.folder / 'end')!r}).exists()"
    program(f"import pathlib, time\nwhile not {ended}: time.sleep(0.01)\nprint('left')")
    run.refresher_log.write_text("of an earlier one\n")
    with refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "a b" in run.refresher_log.read_text())
        (run.folder / "end").touch()
    assert run.refresher_log.read_text() == "of an earlier one\nTrue '' a b\nleft\n"


@pytest.mark.parametrize(("on_sigterm", "error"), [("SIG_IGN", True), ("SIG_IGN", False), ("SIG_DFL", True)])
def test_a_subprocess_that_does_not_exit_is_killed(run, program, monkeypatch, caplog, on_sigterm, error):
    """At the end of the run, and after an error in training; neither end is reported."""
    monkeypatch.setattr(refresher_process, "EXIT_SECONDS", 0.3)
    handles = f"import signal, time; signal.signal(signal.SIGTERM, signal.{on_sigterm})"
    program(f"{handles}; print('pid', os.getpid(), flush=True); time.sleep(60)")
    expected = pytest.raises(KeyboardInterrupt) if error else nullcontext()
    with caplog.at_level(logging.ERROR), expected, refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "pid" in run.refresher_log.read_text())
        if error:
            raise KeyboardInterrupt
    pid = int(run.refresher_log.read_text().split()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert caplog.messages == []


def test_a_subprocess_that_ends_with_an_error_ends_the_waiting_with_its_last_words(run, program):
    run.refresher_log.write_text("error: of an earlier one\n")
    said = "error: kind cannot be imported\\nType it elsewhere"
    program(f"print('{said}', file=sys.stderr, flush=True); sys.exit(1)")
    request = RefreshRequest("tables", "s0", 0, "w")
    with refresher_subprocess(recipe(ASYNC), run) as failure:
        executor = AsyncExecutor(run, 600, "refresh", World(), subprocess_failure=failure)
        with pytest.raises(RuntimeError) as error:
            executor.wait([request])
    assert "exit code 1: error: kind cannot be imported\nType it elsewhere\n" in str(error.value)
    assert "earlier one" not in str(error.value)


def test_a_subprocess_that_was_killed_at_work_may_be_replaced(run, program):
    """Training waits for another refresher: docs/guides/faults.md."""
    program(
        "import os, pathlib, signal; from pyserini_ance.runs.rundir import RunDir; "
        f"RunDir(pathlib.Path({str(run.folder)!r})).refresher.held('preparing').__enter__(); "
        "print('begun', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with refresher_subprocess(recipe(ASYNC), run) as failure:
        until(lambda: "begun" in run.refresher_log.read_text())
        until(lambda: not run.refresher.is_held)
        assert failure() is None
