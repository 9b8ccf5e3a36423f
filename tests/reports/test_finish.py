from unittest.mock import Mock

import pytest
from helpers.small_set import ONE_STEP

import pyserini_ance as pa
from pyserini_ance.commands import train
from pyserini_ance.reports import finish

FILES = ("model/README.md", "report.html")


class Killed(BaseException):
    pass


@pytest.fixture
def killed(small_recipe, tmp_path, monkeypatch):
    """The folder of a run that was killed after its pipeline, before card and report."""
    folder = tmp_path / "run"
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(finish, "write_card_and_report", Mock(side_effect=Killed))
        pa.train(small_recipe({"only": ONE_STEP}), folder)
    assert (folder / "measures.json").exists() and not any((folder / name).exists() for name in FILES)
    return folder


@pytest.mark.parametrize(
    "resume",
    [pa.resume, lambda run: train.main([f"{run}/recipe.yaml", "--output", str(run), "--resume"])],
    ids=["python", "command"],
)
@pytest.mark.long
def test_resuming_writes_the_missing_card_and_report(killed, resume):
    resume(killed)
    assert all((killed / name).exists() for name in FILES)


def test_a_run_is_finished_without_card_and_report_and_the_log_says_why(tmp_path, caplog):
    finish.write_card_and_report(tmp_path)
    card, report = caplog.messages
    assert card.startswith("no README.md: ") and card.endswith(f"publish {tmp_path} NAME")
    assert report.startswith("no report.html: ") and report.endswith(f"pyserini-ance report {tmp_path}")
