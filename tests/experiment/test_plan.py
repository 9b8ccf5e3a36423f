import pytest

from pyserini_ance.experiment.plan import plan

STAGE = {"steps": 20, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "terms": {"query": {"negatives": [{"kind": "ann", "depth": 5}]}}}
STATIC = {**STAGE, "terms": {"query": {"negatives": [{"kind": "random"}]}}}
READY = {"run": "background", "adopt": "ready"}


@pytest.mark.parametrize(
    ("stage", "row"),
    [
        (STATIC, ["inline", "0", "0", "0"]),
        ({**STAGE, "refresh": {"every_steps": 5}}, ["inline", "4", "0", "120"]),
        ({**STAGE, "refresh": {"every_steps": 5, "run": "background"}}, ["background, +5", "3", "0", "90"]),
        ({**STAGE, "refresh": {"every_steps": 5, **READY}, "evaluate": {"every_steps": 10}}, ["background, ready", "4", "2", "150"]),
        ({**STATIC, "evaluate": {"every_steps": 10, **READY}}, ["background, ready", "0", "2", "60"]),
    ],
)
def test_a_stage_says_who_makes_what_and_how_much(small_recipe, stage, row):
    (line,) = [line for line in plan(small_recipe({"b": stage})).splitlines() if line.startswith("| b ")]
    assert [cell.strip() for cell in line.split("|")[6:-1]] == row


def test_what_is_kept_and_in_work_at_once_is_in_the_disk_that_a_run_takes(small_recipe):
    background = {**STAGE, "refresh": {"every_steps": 5, "run": "background", "adopt": {"after_steps": 9}}}
    text = plan(small_recipe({"a": STATIC, "b": background}, keep={"checkpoints": 3}))
    assert "in the run directory: 10 checkpoints of " in text and ", 5 times the vectors of " in text
