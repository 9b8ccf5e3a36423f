"""The model card and the report of a finished run."""

import pytest

import pyserini_ance as pa
from pyserini_ance.commands import train
from pyserini_ance.reports import finish

STAGES = {
    "only": {
        "steps": 1,
        "batch_queries": 2,
        "optimizer": {"learning_rate": 0.001},
        "terms": {"query": {"negatives": [{"kind": "random", "num_negatives": 1}]}},
    }
}
FILES = ("model/README.md", "report.html")


class Killed(BaseException):
    pass


@pytest.fixture
def killed(small_recipe, tmp_path, monkeypatch):
    """A run that was killed after its pipeline, before card and report; (recipe, its folder)."""
    recipe, folder = small_recipe(STAGES), tmp_path / "run"
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(finish, "write_card_and_report", _kill)
        pa.train(recipe, folder)
    assert (folder / "measures.json").exists() and not any((folder / name).exists() for name in FILES)
    return recipe, folder


def _kill(folder):
    raise Killed


def test_resuming_in_python_writes_the_missing_card_and_report(killed):
    _, folder = killed
    assert pa.resume(folder).directory == folder
    assert all((folder / name).exists() for name in FILES)


def test_resuming_by_command_writes_the_missing_card_and_report(killed):
    _, folder = killed
    train.main([str(folder / "recipe.yaml"), "--output", str(folder), "--resume"])
    assert all((folder / name).exists() for name in FILES)


def test_a_run_is_finished_without_card_and_report_and_the_log_says_why(tmp_path, caplog):
    finish.write_card_and_report(tmp_path)
    card, report = caplog.messages
    assert card.startswith("no README.md: ") and card.endswith(f"pyserini-ance publish {tmp_path}")
    assert report.startswith("no report.html: ") and report.endswith(f"pyserini-ance report {tmp_path}")
