import numpy as np
import pytest

from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.runs.generation import (
    RefreshRequest,
    newest_generation_before,
    next_requests,
    open_evaluation,
    open_generation,
    publish_evaluation,
    publish_generation,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import MANIFEST, publishing

MADE_FROM = {"weights": "a" * 64, "collection": "b" * 64}
ABOUT = {"stage": "ance", "step": 10, **MADE_FROM}
REPORTS = {"query.0": {"candidates": 6, "new_share": None, "dropped": {}}}


def table(first: int) -> NegativeTable:
    candidates = np.arange(first, first + 6, dtype=np.int32).reshape(2, 3)
    return NegativeTable(
        "query", "document", np.arange(2, dtype=np.int32), candidates, candidates.astype(np.float32), "ann"
    )


def publish(folder, tables=None, **about) -> None:
    publish_generation(
        folder, tables or {("query", 0): table(0)}, REPORTS, {"search": 1.23456}, {**ABOUT, **about}
    )


def test_tables_come_back_under_their_keys(tmp_path):
    tables = {("query", 0): table(0), ("query", 10): table(10), ("other.term", 1): table(20)}
    publish(tmp_path / "g", tables)
    opened = open_generation(tmp_path / "g", MADE_FROM)
    assert {key: t.candidates.tolist() for key, t in opened.tables.items()} == {
        key: t.candidates.tolist() for key, t in tables.items()
    }
    assert (opened.folder, opened.step, opened.weights) == (tmp_path / "g", 10, "a" * 64)
    assert opened.report["tables"] == REPORTS
    assert opened.report["seconds"]["search"] == 1.235 and "write" in opened.report["seconds"]


@pytest.mark.parametrize("key", MADE_FROM)
def test_tables_of_other_weights_or_data_are_an_error(tmp_path, key):
    publish(tmp_path / "g")
    with pytest.raises(RuntimeError, match=f"g was mined with {key} {MADE_FROM[key][:12]}, expected ccccc"):
        open_generation(tmp_path / "g", {**MADE_FROM, key: "c" * 64})


def test_the_generation_before_is_the_last_complete_one_of_its_stage(tmp_path):
    run = RunDir(tmp_path)
    assert newest_generation_before(run, "ance", 30) is None
    for stage, step in (("ance", 0), ("ance", 10), ("ance", 20), ("ance", 30), ("ance-b", 25)):
        publish(run.generation(stage, step))
    (run.generation("ance", 20) / MANIFEST).unlink()  # as a killed process leaves it
    assert newest_generation_before(run, "ance", 30) == run.generation("ance", 10)
    assert newest_generation_before(run, "ance", 10) == run.generation("ance", 0)
    assert newest_generation_before(run, "ance-b", 25) is None


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path)


@pytest.mark.parametrize(
    ("requests", "made", "expected"),  # `t` asks for tables, `d` for a dev evaluation; `?` is not awaited
    [
        ("", "", ""),
        ("t40", "t40", ""),
        ("t40 t80", "", "t40"),
        ("t40? t80?", "", "t80?"),
        ("t40? t80 t120?", "", "t80"),
        ("d40 t80 d120", "", "t80"),
        ("d40? d80?", "", "d40?"),
        ("d40? t60 d80", "t60", "d40?"),
        ("d40 t40", "", "t40 d40"),
        ("d40 t40", "t40", "d40"),
        ("d40? t80? d80?", "", "t80? d80?"),
    ],
)
def test_tables_come_first_oldest_awaited_or_newest_then_dev_evaluations(run, requests, made, expected):
    def parsed(text: str) -> list[RefreshRequest]:
        kinds = {"t": "tables", "d": "dev"}
        return [
            RefreshRequest(kinds[one[0]], "ance", int(one[1:].rstrip("?")), "w", one[-1] != "?")
            for one in text.split()
        ]

    for request in parsed(made):
        with publishing(run.generation(request.stage, request.step), {}):
            pass
    assert next_requests(parsed(requests), run) == parsed(expected)


def test_an_evaluation_of_other_weights_is_an_error(run):
    publish_evaluation(run.evaluation("ance", 40), {"dev": 0.5}, "w", {})
    assert open_evaluation(run.evaluation("ance", 40), "w")["value"] == 0.5
    with pytest.raises(RuntimeError, match=r"ance-00000040.json was measured with weights w, expected other"):
        open_evaluation(run.evaluation("ance", 40), "other")
