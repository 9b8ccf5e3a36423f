"""What a run in a process of its own tells the process that started it."""

import pytest

from pyserini_ance.experiment import apart
from pyserini_ance.experiment.apart import train_apart
from pyserini_ance.runs.rundir import RunDir


@pytest.mark.parametrize("said", ["no luck", "no luck " * 100_000], ids=["a word", "more than a pipe holds"])
def test_why_a_run_has_failed_is_told(tmp_path, monkeypatch, said):
    def fail(*_):
        raise ValueError(said)

    monkeypatch.setattr(apart, "train", fail)
    with pytest.raises(RuntimeError) as error:
        train_apart(None, RunDir(tmp_path / "run"), overwrite=False)
    assert str(error.value) == said


def test_what_a_run_died_of_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "train", lambda *_: apart.os.kill(apart.os.getpid(), apart.signal.SIGKILL))
    with pytest.raises(RuntimeError, match="killed by signal 9"):
        train_apart(None, RunDir(tmp_path / "run"), overwrite=False)


def test_a_run_that_finishes_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "train", lambda *_: None)
    train_apart(None, RunDir(tmp_path / "run"), overwrite=False)
