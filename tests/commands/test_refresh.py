"""`pyserini-ance refresh` up to its job, which tests/pipeline has."""

from pathlib import Path

import pytest

from pyserini_ance.commands import refresh
from pyserini_ance.pipeline import refresher_process as refreshing
from pyserini_ance.recipe.load import load


@pytest.fixture
def asked(monkeypatch, tmp_path) -> list[tuple]:
    """What the job was called with: the recipe, and the folder."""
    calls = []
    monkeypatch.setattr(
        refreshing, "refresh", lambda *arguments: calls.append(arguments) or "the run has finished"
    )
    monkeypatch.chdir(tmp_path)
    return calls


def test_it_reports_why_it_exits(asked, capsys):
    refresh.main(["demo/ance", "--output", "somewhere"])
    assert asked == [(load("demo/ance").recipe, Path("somewhere"))]
    assert capsys.readouterr().out == "the refresher exits: the run has finished\n"


def test_the_folder_is_that_of_train(asked):
    refresh.main(["demo/ance", "refresher.device=cpu", "name=my/run"])
    ((recipe, folder),) = asked
    assert folder == Path("runs/my-run") and recipe.refresher.device == "cpu"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["demo/anec"], FileNotFoundError, "did you mean demo/ance,"),
        (
            ["demo/ance", "refresher.thread=2"],
            ValueError,
            "refresher.thread: unknown key 'thread' .did you mean 'threads'",
        ),
        (
            ["demo/ance", "refresher.trainer_timeout_seconds=1", "--output", "nowhere"],
            FileNotFoundError,
            "no training has started in nowhere for 1 seconds",
        ),
    ],
)
def test_invalid_requests_are_reported(monkeypatch, tmp_path, arguments, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        refresh.main(arguments)
    assert list(tmp_path.iterdir()) == []
