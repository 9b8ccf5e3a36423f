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


def test_it_has_the_recipe_and_folder_of_train_and_reports_why_it_exits(asked, capsys):
    refresh.main(["demo/ance", "--output", "somewhere"])
    refresh.main(["demo/ance", "refresher.device=cpu", "name=my/run"])
    first, (recipe, folder) = asked
    assert first == (load("demo/ance").recipe, Path("somewhere"))
    assert folder == Path("runs/my-run") and recipe.refresher.device == "cpu"
    assert capsys.readouterr().out == "the refresher exits: the run has finished\n" * 2
