"""A run in a subprocess reports its failure to the parent."""

import pytest

from pyserini_ance.pipeline import subprocess_run
from pyserini_ance.pipeline.subprocess_run import train_in_subprocess
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
