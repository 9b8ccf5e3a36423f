"""Refresh requests: read as written, and served in the order that training needs."""

import pytest

from pyserini_ance.runs.generation import (
    RefreshRequest,
    next_requests,
    open_evaluation,
    publish_evaluation,
    read_requests,
    write_requests,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import publishing


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


def test_a_request_names_the_stages_own_checkpoint_or_another(run):
    assert tables(40).folder(run) == run.checkpoints / "ance-00000040"
    assert (
        RefreshRequest("tables", "epi-2", 0, "w", checkpoint="epi-1-00000200").folder(run)
        == run.checkpoints / "epi-1-00000200"
    )


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
