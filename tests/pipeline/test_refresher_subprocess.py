"""The refresher subprocess of training: when it is started, how, and how it ends. Small programs replace
it.
"""

import logging
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.base_recipe import recipe_of_stages
from helpers.waiting import until

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline import refresher_process
from pyserini_ance.pipeline.refresher_process import (
    check_refresher,
    refresh_command,
    refresher_command,
    refresher_device,
    refresher_subprocess,
    subprocess_environment,
)
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe, RefresherProcess
from pyserini_ance.runs.generation import RefreshRequest
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import AsyncExecutor

ANN = {"query": {"negatives": [{"kind": "ann"}]}}
STAGE = {
    "steps": 20,
    "batch_queries": 1,
    "optimizer": {"learning_rate": 1.0},
    "terms": ANN,
    "refresh": {"every_steps": 5},
}
ASYNC = {**STAGE, "refresh": {"every_steps": 5, "mode": "async"}}
SAYS = (
    "import os, sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), *sys.argv[1:], flush=True); "
)


def recipe(*stages: dict, **refresher) -> Recipe:
    return recipe_of_stages(*stages, refresher=refresher)


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path)
    made.recipe.write_text(dump(recipe(ASYNC)))
    return made


@pytest.fixture
def program(monkeypatch):
    """Let a program be the subprocess."""
    return lambda text: monkeypatch.setattr(
        refresher_process,
        "refresher_command",
        lambda recipe, run: [sys.executable, "-c", SAYS + text, "a", "b"],
    )


@pytest.mark.parametrize(
    ("settings", "gpus", "is_refused"),
    [
        ({"device": "cuda", "processes": 2}, 0, True),
        ({"device": "cuda:1"}, 1, True),
        ({"processes": 2}, 1, True),
        ({"processes": 2}, 0, False),
        ({"device": "cpu", "processes": 2}, 1, False),
        ({"device": "cuda:1", "processes": 2}, 3, False),
        ({"device": "cuda", "launch": "external"}, 0, False),
    ],
)
def test_gpus_that_the_refresher_lacks_are_missed_before_training(monkeypatch, settings, gpus, is_refused):
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    check_refresher(recipe(STAGE, **settings))  # never starts
    message = rf"refresher\.device .* torch sees {gpus} GPUs\. Set refresher"
    with pytest.raises(SettingError, match=message) if is_refused else nullcontext():
        check_refresher(recipe(ASYNC, **settings))


@pytest.mark.parametrize(
    ("settings", "local_processes", "gpus", "device"),
    [
        ({}, 1, 0, "auto"),  # no GPU
        ({}, 1, 2, "cuda:1"),
        ({}, 8, 8, "cuda:0"),
        ({"processes": 2}, 6, 8, "cuda:6"),
        ({"processes": 2}, 7, 8, "cuda:0"),
        ({"device": "cuda:3"}, 4, 8, "cuda:3"),
        ({"device": "cpu"}, 4, 8, "cpu"),
    ],
)
def test_the_refresher_takes_a_gpu_that_training_leaves_free(settings, local_processes, gpus, device):
    assert refresher_device(RefresherProcess(**settings), local_processes, gpus) == device


@pytest.mark.parametrize(
    ("of_refresher", "of_training", "gpus", "shared"),
    [
        ("auto", "auto", 4, None),
        ("auto", "cuda", 3, 0),
        ("cuda:1", "auto", 4, 1),
        ("cuda:3", "cuda", 4, None),
    ],
)
def test_a_gpu_that_training_and_the_refresher_share_is_logged(
    run, program, monkeypatch, caplog, of_refresher, of_training, gpus, shared
):
    """Three training processes on one host."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    program("")
    made = recipe(ASYNC, device=of_refresher).model_copy(update={"device": of_training})
    with caplog.at_level("WARNING"), refresher_subprocess(made, run):
        pass
    # On a busy machine the program, which does nothing, may end early: that is logged, too.
    told = [message.partition(" with")[0] for message in caplog.messages if "shares" in message]
    assert told == ([] if shared is None else [f"the refresher shares GPU {shared}"])


def test_neither_a_refresher_on_the_cpu_nor_one_beside_cpu_training_asks_for_gpus(run, program, monkeypatch):
    def touched():
        raise AssertionError("CUDA was asked")

    monkeypatch.setattr("torch.cuda.device_count", touched)
    program("")
    check_refresher(recipe(ASYNC, device="cpu"))
    for made in (recipe(ASYNC, device="cpu"), recipe(ASYNC).model_copy(update={"device": "cpu"})):
        with refresher_subprocess(made, run):
            pass


def test_the_command_has_the_recipe_of_the_run_and_the_changed_settings(run):
    arguments = ["-m", "pyserini_ance", "refresh", f"{run.folder}/recipe.yaml"]
    assert refresher_command(recipe(ASYNC), run) == [sys.executable, *arguments, "--output", str(run.folder)]
    changed = recipe(ASYNC, processes=3, device="cuda:1").model_copy(
        update={"cache": Path("/my cache"), "threads": 2}
    )
    overrides = ["cache=/my cache", "threads=2", "refresher.device=cuda:1", "refresher.processes=3"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    command = refresher_command(changed, run)
    assert command[: 1 + len(launcher) + len(arguments)] == [sys.executable, *launcher, *arguments]
    assert sorted(command[1 + len(launcher) + len(arguments) : -2]) == sorted(overrides) and command[-2:] == [
        "--output",
        str(run.folder),
    ]
    assert "'cache=/my cache'" in refresh_command(changed, run)


def test_the_subprocess_does_not_inherit_the_world_of_torchrun(monkeypatch):
    world = (
        "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK ROLE_RANK ROLE_NAME"
    )
    names = [*world.split(), "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"]
    for name in (*names, "OMP_NUM_THREADS", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    inherited = subprocess_environment(None)
    assert not {*names} & inherited.keys() and inherited["OMP_NUM_THREADS"] == "1"
    assert subprocess_environment(3) == {**inherited, "OMP_NUM_THREADS": "3"}
    monkeypatch.setattr(sys, "path", ["", "/", "a hook of an editable install", "/"])
    assert subprocess_environment(None)["PYTHONPATH"].split(os.pathsep) == [os.getcwd(), "/"]


@pytest.mark.parametrize(
    ("stage", "settings"),
    [(STAGE, {}), ({**STAGE, "evaluate": {"every_steps": 5}}, {}), (ASYNC, {"launch": "external"})],
)
def test_no_subprocess_is_started_if_none_is_needed(run, program, stage, settings):
    program("")
    with refresher_subprocess(recipe(stage, **settings), run):
        pass
    assert not run.refresher_log.exists()


def test_no_subprocess_is_started_if_a_refresher_is_running(run, program, caplog):
    program("")
    holder = "import sys; from pathlib import Path; from pyserini_ance.runs.rundir import RunDir\n"
    holder += "with RunDir(Path(sys.argv[1])).refresher.held('tables'): print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, run.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with caplog.at_level("INFO"), refresher_subprocess(recipe(ASYNC), run):
            pass
        other.stdin.close()
    assert not run.refresher_log.exists()
    (message,) = caplog.messages
    assert message.startswith("a refresher is already running: ") and f"process {other.pid} " in message


def test_the_subprocess_has_a_session_of_its_own_and_exits_with_the_run(run, program, caplog):
    program(
        f"import pathlib, time\nwhile not pathlib.Path({str(run.folder / 'end')!r}).exists(): "
        f"time.sleep(0.01)\nprint('left')"
    )
    run.refresher_log.write_text("of an earlier one\n")
    with caplog.at_level("INFO"), refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "a b" in run.refresher_log.read_text())
        (run.folder / "end").touch()
    assert run.refresher_log.read_text() == "of an earlier one\nTrue '' a b\nleft\n"
    assert len(caplog.messages) == 1 and caplog.messages[0].endswith(f"; it logs to {run.refresher_log}")


def test_an_early_end_is_reported_with_the_command_for_another_refresher(run, program, caplog):
    program("sys.exit(3)")
    with caplog.at_level("ERROR"), refresher_subprocess(recipe(ASYNC), run):
        until(lambda: caplog.messages)
    assert caplog.messages == [
        f"the refresher has ended (exit code 3, see {run.refresher_log}); training continues until "
        f"it needs new negatives. "
        f"Start another refresher with: {refresh_command(recipe(ASYNC), run)}"
    ]


@pytest.mark.parametrize(("on_sigterm", "error"), [("SIG_IGN", True), ("SIG_IGN", False), ("SIG_DFL", True)])
def test_a_subprocess_that_does_not_exit_is_told_to_and_killed(
    run, program, monkeypatch, caplog, on_sigterm, error
):
    """At the end of the run, and after an error in training; neither end is reported."""
    monkeypatch.setattr(refresher_process, "EXIT_SECONDS", 0.3)
    program(
        f"import signal, time; signal.signal(signal.SIGTERM, signal.{on_sigterm}); print('pid', os.getpid(), "
        "flush=True); time.sleep(60)"
    )
    expected = pytest.raises(KeyboardInterrupt) if error else nullcontext()
    with caplog.at_level(logging.ERROR), expected, refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "pid" in run.refresher_log.read_text())
        if error:
            raise KeyboardInterrupt
    pid = int(run.refresher_log.read_text().split()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert caplog.messages == []


def test_the_subprocess_finds_the_modules_that_training_finds(run, program, tmp_path, monkeypatch):
    """Training may have been started from another folder, by a script next to the module."""
    modules, elsewhere = tmp_path / "modules", tmp_path / "elsewhere"
    modules.mkdir()
    elsewhere.mkdir()
    (modules / "own_source_of_training.py").write_text("print('imported')\n")
    monkeypatch.syspath_prepend(modules)
    monkeypatch.chdir(elsewhere)
    program("import own_source_of_training")
    with refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "a b" in run.refresher_log.read_text())
    assert run.refresher_log.read_text() == "True '' a b\nimported\n"


def test_a_subprocess_that_ends_with_an_error_ends_the_waiting_with_its_last_words(run, program):
    run.refresher_log.write_text("error: of an earlier one\n")
    program(
        "print('error: kind cannot be imported\\nType it elsewhere', file=sys.stderr, flush=True); "
        "sys.exit(1)"
    )
    request = RefreshRequest("tables", "s0", 0, "w")
    with refresher_subprocess(recipe(ASYNC), run) as failure:
        executor = AsyncExecutor(run, RefresherProcess(), "refresh", World(), subprocess_failure=failure)
        with pytest.raises(RuntimeError) as error:
            executor.wait([request])
    assert str(error.value) == (
        f"training needs the {request.describe()}, but the refresher that it started has ended with "
        "exit code 1: error: kind cannot be imported\nType it elsewhere\n"
        f"Its log is {run.refresher_log}\n"
        "Remove the cause and continue with --resume, which starts another"
    )


def test_a_subprocess_that_was_killed_at_work_may_be_replaced(run, program, caplog):
    """Training waits `refresher_timeout_seconds` for another refresher: docs/guides/faults.md."""
    program(
        "import os, pathlib, signal; from pyserini_ance.runs.rundir import RunDir; "
        f"RunDir(pathlib.Path({str(run.folder)!r})).refresher.held('preparing').__enter__(); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with caplog.at_level("ERROR"), refresher_subprocess(recipe(ASYNC), run) as failure:
        until(lambda: caplog.messages)
        assert "exit code -9" in caplog.messages[0] and failure() is None
