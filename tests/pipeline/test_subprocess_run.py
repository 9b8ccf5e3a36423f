"""A run in a subprocess reports its failure to the parent; forked processes work beside it."""

import os
import signal
import subprocess
import sys

import pytest
from helpers.waiting import is_alive, until

from pyserini_ance.pipeline import subprocess_run
from pyserini_ance.pipeline.subprocess_run import beside, train_in_subprocess
from pyserini_ance.runs.rundir import RunDir


@pytest.mark.parametrize(
    "said", ["no luck", "no luck " * 100_000], ids=["short", "longer than the buffer of a pipe"]
)
def test_the_error_of_a_failed_run_is_raised(tmp_path, monkeypatch, said):
    def fail(*_):
        raise ValueError(said)

    monkeypatch.setattr(subprocess_run, "train", fail)
    with pytest.raises(RuntimeError) as error:
        train_in_subprocess(None, RunDir(tmp_path / "run"), overwrite=False)
    assert str(error.value) == said


def test_the_signal_that_killed_a_run_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(
        subprocess_run,
        "train",
        lambda *_: subprocess_run.os.kill(subprocess_run.os.getpid(), subprocess_run.signal.SIGKILL),
    )
    with pytest.raises(RuntimeError, match="killed by signal 9"):
        train_in_subprocess(None, RunDir(tmp_path / "run"), overwrite=False)


def test_a_finished_run_raises_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess_run, "train", lambda *_: None)
    train_in_subprocess(None, RunDir(tmp_path / "run"), overwrite=False)


# Jobs that need a while to end, as those that train do.
PARENT = """
import os, sys, time
from pathlib import Path
from pyserini_ance.pipeline.subprocess_run import beside

def work():
    Path(sys.argv[1], f"{os.getpid()}.began").touch()
    try:
        time.sleep(600)
    finally:
        Path(sys.argv[1], f"{os.getpid()}.told").touch()
        time.sleep(600)

with beside(3, work):
    time.sleep(600)
"""


def test_all_jobs_are_told_at_once_that_the_command_was_killed(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)])
    until(lambda: len([*tmp_path.glob("*.began")]) == 3, 120)
    jobs = [int(path.stem) for path in tmp_path.glob("*.began")]
    try:
        parent.kill()
        until(lambda: len([*tmp_path.glob("*.told")]) == 3, 120)
        assert all(map(is_alive, jobs))  # no job had to wait for the end of another
    finally:
        for job in jobs:
            os.kill(job, signal.SIGKILL)
        parent.wait()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_job_that_dies_is_reported_and_the_others_go_on(caplog, tmp_path):
    with beside(1, (tmp_path / "done").touch), beside(1, killed):
        pass
    assert (tmp_path / "done").exists()
    assert [message.partition(";")[0] for message in caplog.messages] == [
        "a job ended early (killed by signal 9"
    ]


def test_an_error_ends_the_jobs(tmp_path):
    def work() -> None:
        (tmp_path / str(os.getpid())).touch()
        signal.pause()

    def fail() -> None:
        with beside(2, work):
            until(lambda: len([*tmp_path.iterdir()]) == 2, 120)
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        fail()
    assert not any(is_alive(int(path.name)) for path in tmp_path.iterdir())
