"""The times that a dry run expects, from given measurements."""

import pytest
from helpers.stages import make_stage

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline import dry_run
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.runs.run_log import RunLog

STAGE = make_stage(
    {"kind": "ann", "top_k": 5},
    steps=6,
    batch_queries=2,
    refresh={"every_steps": 3},
    evaluate={"every_steps": 2},
)


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ("both", 2 * 3 + 3 * 100),  # refreshes before steps 0 and 3; dev of 2, 4 and 6
        ("query_tower", 10 + 2 * 3),  # documents are encoded once, as measured
    ],
)
def test_frozen_documents_are_encoded_once(small_recipe, tmp_path, monkeypatch, trainable, expected):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(
        RunLog,
        "seconds_spent",
        lambda log, stage: {"step": 4.0, "refresh": 3.0, "documents": 10.0 * (trainable == "query_tower")},
    )
    monkeypatch.setattr(dry_run, "_seconds_to_encode", lambda *given: 100.0)
    recipe = small_recipe({"only": {**STAGE, "trainable": trainable}}, cache=str(tmp_path / "cache"))
    report = dry_run.dry_run(recipe, prepare(recipe, World()), 2, World())
    cells = [cell.strip() for cell in report.splitlines()[3].split("|")[1:-1]]
    assert cells == ["only", "2.000", "12.0", f"{expected:.1f}"]
