"""Runs whose refreshes encode a part, the oldest documents first, and correct the vectors of the others."""

import json
from pathlib import Path

import pytest
from helpers.run_outcome import folders, outcome
from helpers.stages import ANN, make_stage, recipe_file

from pyserini_ance.pipeline.plan import documents_encoded
from pyserini_ance.storage.files import read_json_lines

ENCODE = {"part": 0.4, "min_recall": 0}
DEV = {"every_steps": 6, "sample_documents": 20, "keep_best": False}
STAGE = make_stage(ANN, steps=12, refresh={"every_steps": 3, "encode": ENCODE}, evaluate=DEV)


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory) -> Path:
    made = small_recipe({"ance": STAGE}, save_total_limit=1)
    return recipe_file(made, tmp_path_factory.mktemp("recipe"))


def encoded(run: Path) -> list[dict]:
    return [r["encoded"] for r in read_json_lines(run / "metrics.jsonl") if r["event"] == "generation"]


def test_each_refresh_after_the_first_encodes_a_part(undisturbed, small_recipe):
    whole, *others = encoded(undisturbed)
    assert whole == {"documents": 30} and len(others) == 3
    assert all((one["documents"], one["part"], one["corrected"]) == (12, 0.4, True) for one in others)
    assert [one["base"] for one in others] == [0, 3, 6]
    ages = [(one["mean_age_steps"], one["max_age_steps"]) for one in others]
    assert ages[0] == (3 * 18 / 30, 3) and ages[2][1] == 6  # those of step 0 are encoded again
    stage = small_recipe({"ance": STAGE}).stages["ance"]
    assert documents_encoded(stage, 30) == 30 + 3 * 12 + 2 * 20  # dev samples before step 6 and at the end
    found = outcome(undisturbed)
    assert folders(found, "checkpoints") == ["ance-00000012", "initial-00000000"]
    assert not any(name.startswith("scratch/") for name in found["files"])
    report = (undisturbed / "report.html").read_text()
    assert "Corrected vectors" in report and "age of vectors, oldest" in report


def test_a_run_killed_within_a_correction_resumes_to_bitwise_the_same(train, undisturbed, tmp_path):
    """The first and the second corrected refresh; then tables that only lack their commit."""
    folder = tmp_path / "run"
    moments = [("kill_in_correction", "", 1), ("kill_in_correction", "", 2), ("kill_in_tables", "ance", 9)]
    for number, (fault, stage, step) in enumerate(moments):
        train(folder, *["--resume"] * (number > 0), code=-9, fault=fault, stage=stage, step=step)
        where = json.loads((folder / "state.json").read_text())["where"]
        assert where == f"stage ance, step {3 * number + 3}"
        kept = sorted(path.name for path in (folder / "checkpoints").iterdir() if path.name[0] != ".")
        assert f"ance-{3 * number:08d}" in kept  # its vectors are corrected
    train(folder, "--resume")
    assert outcome(folder) == outcome(undisturbed)


def test_a_replay_repeats_it(train, undisturbed, tmp_path):
    train(tmp_path / "run", "--replay", str(undisturbed / "decisions.jsonl"))
    assert encoded(tmp_path / "run") == encoded(undisturbed)
    one, other = outcome(undisturbed), outcome(tmp_path / "run")
    assert one["rows"] == other["rows"] and one["decisions"] == other["decisions"]
