import os

import pytest

from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines


@pytest.fixture
def log(tmp_path) -> RunLog:
    made = RunLog(RunDir(tmp_path))
    for stage in ("warm", "ance"):
        for step in range(4):
            if step % 2 == 0:
                made.decide("adopt", stage=stage, step=step, folder=f"{stage}{step}")
                made.metric("refresh", stage=stage, step=step, seconds=10.0)
            made.metric("step", stage=stage, step=step, seconds=0.5)
    return made


def steps(log: RunLog, path: str) -> list[tuple]:
    return [(r["event"], r["stage"], r["step"]) for r in read_json_lines(getattr(log.run, path))]


def test_decisions_are_synced_before_they_count(log, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    log.metric("step", stage="ance", step=4, seconds=1.0)
    assert synced == []
    log.decide("best", stage="ance", step=4, value=0.5)
    assert synced == [str(log.run.decisions)]


def test_forgetting_keeps_earlier_steps_and_other_stages(log):
    log.forget_after("ance", 2)
    assert steps(log, "decisions") == [("adopt", "warm", 0), ("adopt", "warm", 2), ("adopt", "ance", 0)]
    kept = [("refresh", "ance", 0), ("step", "ance", 0), ("step", "ance", 1)]
    assert [s for s in steps(log, "metrics") if s[1] == "ance"] == kept
    assert len([s for s in steps(log, "metrics") if s[1] == "warm"]) == 6


def test_seconds_of_a_stage_count_each_step_once(log):
    log.forget_after("ance", 3)
    log.metric("step", stage="ance", step=3, seconds=2.0)
    assert log.stage_seconds("ance") == {"train seconds": 3.5, "refresh seconds": 20.0}


def test_a_stage_that_neither_mines_nor_measures_has_no_refresh_seconds(log):
    assert log.stage_seconds("steps-alone") == {"train seconds": 0.0}
    log.metric("refresh", stage="steps-alone", step=0, seconds=1.0)
    assert log.stage_seconds("steps-alone") == {"train seconds": 0.0, "refresh seconds": 1.0}


def test_refresh_seconds_include_frozen_documents(log):
    parts = {"load": 0.25, "encode_documents": 30.0, "build": 4.5}
    log.metric("documents", stage="ance", step=0, parts=parts)
    assert log.stage_seconds("ance") == {"train seconds": 2.0, "refresh seconds": 54.8}
    assert log.seconds_spent("ance") == {"step": 2.0, "refresh": 20.0, "documents": 34.75}
    assert log.stage_seconds("warm") == {"train seconds": 2.0, "refresh seconds": 20.0}
