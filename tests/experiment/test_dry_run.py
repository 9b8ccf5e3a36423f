"""What a dry run foretells, from seconds that are given."""

import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.experiment import dry_run
from pyserini_ance.experiment.prepare import prepare
from pyserini_ance.runs.log import RunLog

STAGE = {"steps": 6, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "refresh": {"every_steps": 3}, "evaluate": {"every_steps": 2}}
ANN = {"query": {"negatives": [{"kind": "ann", "depth": 5}]}}


@pytest.mark.parametrize(
    ("train", "foretold"),
    [
        ("both", 2 * 3 + 3 * 100),  # refreshes before steps 0 and 3; dev of 2, 4 and 6
        ("queries", 10 + 2 * 3),  # documents are encoded once, as measured
    ],
)
def test_documents_that_stay_take_what_was_measured_and_no_more(small_recipe, tmp_path, monkeypatch, train, foretold):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(RunLog, "seconds_spent", lambda log, stage: {"step": 4.0, "refresh": 3.0, "documents": 10.0 * (train == "queries")})
    monkeypatch.setattr(dry_run, "_seconds_to_encode", lambda *given: 100.0)
    recipe = small_recipe({"only": {**STAGE, "train": train, "terms": ANN}}, cache=str(tmp_path / "cache"))
    told = dry_run.dry_run(recipe, prepare(recipe, World()), 2, World())
    assert [cell.strip() for cell in told.splitlines()[3].split("|")[1:-1]] == ["only", "2.000", "12.0", f"{foretold:.1f}"]
