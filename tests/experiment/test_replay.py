import json
from math import inf

import pytest

from pyserini_ance.experiment.replay import read_replay, replay_scripts
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.trainer.handover import Script

RECORDS = [
    {"event": "adopt", "stage": "bm25-neg", "step": 0, "of": 0, "folder": "negatives/bm25-neg-00000000", "weights": "u"},
    {"event": "stage_end", "stage": "bm25-neg", "step": 60, "result": "bm25-neg-00000060", "weights": "v"},
    {"event": "adopt", "stage": "ance", "step": 0, "of": 0, "folder": "negatives/ance-00000000", "weights": "v"},
    {"event": "adopt", "stage": "ance", "step": 47, "of": 40, "folder": "negatives/ance-00000040", "weights": "w"},
    {"event": "evaluate", "stage": "ance", "step": 51, "of": 40, "value": 0.5, "weights": "w"},
    {"event": "best", "stage": "ance", "step": 51, "of": 40, "value": 0.5},
    {"event": "resume", "environment": {}},
    {"event": "stage_end", "stage": "ance", "step": 120, "result": "ance-00000120", "weights": "x"},
]


def recipe(*overrides: str) -> Recipe:
    return load("demo/ance", *overrides).recipe


@pytest.fixture
def decisions(tmp_path):
    """Writes a run's decisions, and its recipe beside them."""

    def write(records=RECORDS, recorded: Recipe | None = None):
        (tmp_path / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if recorded:
            (tmp_path / "recipe.yaml").write_text(dump(recorded))
        return tmp_path / "decisions.jsonl"

    return write


def test_the_text_is_that_of_the_file(decisions):
    assert read_replay(decisions(), recipe()) == decisions().read_text()


@pytest.mark.parametrize(
    "override",
    ["name=other", "about=again", "keep.tables=1", "threads=2", "refresher.start=elsewhere", "cache=/elsewhere", "data.official.documents=7"],
)
def test_a_replay_may_lie_and_compute_elsewhere(decisions, override):
    path = decisions(recorded=recipe(override))
    assert read_replay(path, recipe()) == path.read_text()


@pytest.mark.parametrize("override", ["seed=7", "stages.ance.optimizer.learning_rate=1e-4", "stages.ance.refresh.every_steps=30"])
def test_another_recipe_is_refused_with_the_one_to_take(decisions, override):
    path = decisions(recorded=recipe(override))
    with pytest.raises(ValueError, match=f"was of another recipe; replay it with: python -m pyserini_ance.train {path.parent}/recipe.yaml"):
        read_replay(path, recipe())


def test_a_run_that_has_not_finished_is_refused(decisions):
    with pytest.raises(ValueError, match=r"decisions.jsonl: stage ance has no end there; replay a run of this recipe that finished"):
        read_replay(decisions(RECORDS[:-1]), recipe())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"--replay {tmp_path}/no.jsonl: no such file; expected the decisions.jsonl of a run"):
        read_replay(tmp_path / "no.jsonl", recipe())


def test_a_stages_scripts_tell_what_it_adopted_when(decisions):
    assert replay_scripts(decisions(), "ance") == {
        "tables": Script({0: [0], 47: [40]}, inf, {0: "v", 40: "w"}),
        "dev": Script({51: [40]}, inf, {40: "w"}),
    }
    assert replay_scripts(decisions(), "bm25-neg") == {"tables": Script({0: [0]}, inf, {0: "u"}), "dev": Script({}, inf, {})}


def test_a_run_that_is_no_replay_has_no_scripts(tmp_path):
    assert replay_scripts(tmp_path / "replay.jsonl", "ance") == {}
