"""The refresher subprocess of training: when it is started, how, and how it ends. Small programs replace
it.
"""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.base_recipe import recipe_of_stages
from helpers.waiting import until

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline import refresher_process
from pyserini_ance.pipeline.refresher_process import (
    check_refresher,
    needs_refresher,
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
    ("stages", "needed"),
    [
        ([STAGE], False),
        ([ASYNC], True),
        ([STAGE, ASYNC], True),
        ([{**STAGE, "evaluate": {"every_steps": 5}}], False),
        ([{**STAGE, "evaluate": {"every_steps": 5, "mode": "async"}}], True),
        ([{**ASYNC, "evaluate": {"every_steps": 5, "mode": "sync"}}], True),
    ],
)
def test_a_refresher_is_needed_for_async_products(stages, needed):
    assert needs_refresher(recipe(*stages)) is needed


@pytest.mark.parametrize(
    ("settings", "gpus", "is_refused"),
    [
        ({"device": "cuda", "processes": 2}, 0, True),
        ({"device": "cuda"}, 0, True),
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
    if not is_refused:
        check_refresher(recipe(ASYNC, **settings))
        return
    with pytest.raises(SettingError, match=rf"refresher\.device .* torch sees {gpus} GPUs\. Set refresher"):
        check_refresher(recipe(ASYNC, **settings))


@pytest.mark.parametrize(
    ("settings", "local_processes", "gpus", "device"),
    [
        ({}, 1, 0, "auto"),  # no GPU
        ({}, 1, 1, "cuda:0"),
        ({}, 1, 2, "cuda:1"),
        ({}, 6, 8, "cuda:6"),
        ({}, 8, 8, "cuda:0"),
        ({"processes": 2}, 6, 8, "cuda:6"),
        ({"processes": 2}, 7, 8, "cuda:0"),
        ({"device": "cuda"}, 4, 8, "cuda"),
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


def test_the_free_gpu_is_in_the_command(run, monkeypatch):
    commands = []
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr(
        refresher_process,
        "refresher_command",
        lambda *arguments: (commands.append(refresher_command(*arguments)), [sys.executable, "-c", ""])[1],
    )
    with refresher_subprocess(recipe(ASYNC), run):
        pass
    assert "refresher.device=cuda:3" in commands[0]


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
    world = {
        "RANK": "0",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }
    more = {
        "GROUP_RANK": "0",
        "ROLE_RANK": "0",
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    for name, value in {**world, **more, "OMP_NUM_THREADS": "1", "PYTHONPATH": "somewhere"}.items():
        monkeypatch.setenv(name, value)
    inherited = subprocess_environment(None)
    assert not {*world, *more} & inherited.keys()
    assert inherited["OMP_NUM_THREADS"] == "1" and inherited.keys() <= os.environ.keys()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", ["", "/", "a hook of an editable install", "/"])
        environment = subprocess_environment(None)
    assert environment["PYTHONPATH"].split(os.pathsep) == [os.getcwd(), "/"]
    assert subprocess_environment(3) == {**inherited, "OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize("made", [recipe(STAGE), recipe(ASYNC, launch="external")], ids=["sync", "external"])
def test_no_subprocess_is_started_if_none_is_needed(run, made, program):
    program("")
    with refresher_subprocess(made, run):
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


def test_an_end_with_its_training_is_not_reported(run, program, caplog):
    program("import time; time.sleep(60)")
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), caplog.at_level("ERROR"), refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "a b" in run.refresher_log.read_text())
        raise KeyboardInterrupt
    assert time.monotonic() - start < refresher_process.EXIT_SECONDS and caplog.messages == []


def test_a_subprocess_that_does_not_exit_is_killed(run, program, monkeypatch, caplog):
    monkeypatch.setattr(refresher_process, "EXIT_SECONDS", 0.3)
    program(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', "
        "os.getpid(), flush=True); time.sleep(60)"
    )
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError), refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "deaf" in run.refresher_log.read_text())
        raise ValueError
    pid = int(run.refresher_log.read_text().split()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert caplog.messages == []


def test_a_subprocess_that_still_works_at_the_end_of_the_run_is_told_to_end(run, program, monkeypatch):
    monkeypatch.setattr(refresher_process, "EXIT_SECONDS", 0.3)
    program(
        "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (print('told', flush=True), "
        "sys.exit())); print('ready', flush=True); time.sleep(60)"
    )
    with refresher_subprocess(recipe(ASYNC), run):
        until(lambda: "ready" in run.refresher_log.read_text())
    assert run.refresher_log.read_text().endswith("told\n")


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


def test_a_subprocess_that_is_killed_before_it_has_its_role_ends_the_waiting(run, program):
    program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with refresher_subprocess(recipe(ASYNC), run) as failure:
        executor = AsyncExecutor(run, RefresherProcess(), "refresh", World(), subprocess_failure=failure)
        with pytest.raises(RuntimeError, match="has ended with exit code -9: True '' a b\nIts log is "):
            executor.wait([RefreshRequest("tables", "s0", 0, "w")])


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
