"""Generations: tables come back verified, with their keys and their report."""

import numpy as np
import pytest

from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.generation import (
    Generation,
    RefreshRequest,
    mined_sources,
    newest_generation_before,
    next_requests,
    open_evaluation,
    open_generation,
    publish_evaluation,
    publish_generation,
    read_requests,
    write_requests,
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


def test_describe_fits_a_generation_in_one_line():
    mined = {
        "candidates": 1200,
        "new_share": 0.256,
        "dropped": {"known positives": 31, "teacher": 0},
        "promoted": 4,
        "margin": {"mean": -0.12345},
    }
    report = {
        "tables": {"query.0": mined, "query.1": REPORTS["query.0"]},
        "seconds": {"encode_documents": 61.26, "write": 0.04},
    }
    assert Generation(None, 10, "w", {}, report).describe() == (
        "encode documents 61.3 s, write 0.0 s; "
        "query.0: 1200 candidates, 26% new, margin -0.123, 31 known positives dropped, "
        "0 teacher dropped, 4 promoted; query.1: 6 candidates"
    )


@pytest.mark.parametrize("key", MADE_FROM)
def test_tables_of_other_weights_or_data_are_an_error(tmp_path, key):
    publish(tmp_path / "g")
    expected = (
        f"g was mined with {key} {MADE_FROM[key][:12]}, expected cccccccccccc; "
        f"remove it, or restore that {key}"
    )
    with pytest.raises(RuntimeError, match=expected):
        open_generation(tmp_path / "g", {**MADE_FROM, key: "c" * 64})


def test_the_generation_before_is_the_last_complete_one_of_its_stage(tmp_path):
    run = RunDir(tmp_path)
    assert newest_generation_before(run, "ance", 30) is None
    for stage, step in (("ance", 0), ("ance", 10), ("ance", 20), ("ance", 30), ("ance-b", 25)):
        publish(run.generation(stage, step))
    (run.generation("ance", 20) / MANIFEST).unlink()  # as a killed process leaves it
    assert newest_generation_before(run, "ance", 30) == run.generation("ance", 10)
    assert newest_generation_before(run, "ance", 10) == run.generation("ance", 0)
    assert (
        newest_generation_before(run, "ance", 0) is None
        and newest_generation_before(run, "ance-b", 25) is None
    )


def test_mined_sources_have_a_key_by_term_and_index():
    terms = {
        "one": {"negatives": [{"kind": "random"}, {"kind": "ann"}]},
        "two": {"negatives": [{"kind": "bm25"}]},
        "three": {"in_batch_negatives": True},
    }
    settings = {
        "steps": 1,
        "batch_queries": 1,
        "optimizer": {"learning_rate": 1.0},
        "refresh": {"every_steps": 1},
    }
    stage = Stage.model_validate({**settings, "terms": terms})
    assert {key: source.kind for key, source in mined_sources(stage).items()} == {
        ("one", 1): "ann",
        ("two", 0): "bm25",
    }
    assert set(mined_sources(stage, dynamic_only=True)) == {("one", 1)}


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path)


def tables(step: int, is_awaited: bool = True) -> RefreshRequest:
    return RefreshRequest("tables", "ance", step, "w", is_awaited)


def dev(step: int, is_awaited: bool = True) -> RefreshRequest:
    return RefreshRequest("dev", "ance", step, "w", is_awaited)


def make(run: RunDir, request: RefreshRequest) -> None:
    if request.kind == "dev":
        publish_evaluation(run.evaluation(request.stage, request.step), {"dev": 0.5}, request.weights, {})
        return
    with publishing(run.generation(request.stage, request.step), {}):
        pass


def test_requests_are_read_as_written(run):
    assert read_requests(run) == []
    write_requests(run, [tables(0), dev(5, is_awaited=False)])
    assert read_requests(run) == [tables(0), dev(5, is_awaited=False)]


@pytest.mark.parametrize(
    ("requests", "made", "expected"),
    [
        ([], [], []),
        ([tables(40)], [], [tables(40)]),
        ([tables(40)], [tables(40)], []),
        ([tables(40), tables(80)], [], [tables(40)]),
        ([tables(40, False), tables(80, False)], [], [tables(80, False)]),
        ([tables(40, False), tables(80), tables(120, False)], [], [tables(80)]),
        ([dev(40), tables(80), dev(120)], [], [tables(80)]),
        ([dev(40, False), dev(80, False)], [], [dev(40, False)]),
        ([dev(40, False), tables(60), dev(80)], [tables(60)], [dev(40, False)]),
        ([dev(40), tables(40)], [], [tables(40), dev(40)]),
        ([dev(40), tables(40)], [tables(40)], [dev(40)]),
        ([dev(40, False), tables(80, False), dev(80, False)], [], [tables(80, False), dev(80, False)]),
    ],
)
def test_tables_come_first_oldest_awaited_or_newest_then_dev_evaluations(run, requests, made, expected):
    for request in made:
        make(run, request)
    assert next_requests(requests, run) == expected


def test_an_evaluation_of_other_weights_is_an_error(run):
    make(run, dev(40))
    assert open_evaluation(run.evaluation("ance", 40), "w")["value"] == 0.5
    with pytest.raises(
        RuntimeError, match=r"ance-00000040.json was measured with weights w, expected other; remove it"
    ):
        open_evaluation(run.evaluation("ance", 40), "other")
