"""What is ordered of a stage's checkpoints, taken up and recorded, with tables of two queries."""

import shutil
from functools import partial

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs import generation
from pyserini_ance.runs.generation import RefreshRequest, publish_generation
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.products import Refreshes
from pyserini_ance.trainer.refresh import AdoptionLog

IDENTITY = {"collection": "c" * 64, "tokenization": "t" * 64}
STATIC, REFRESHED = ("query", 0), ("query", 1)
SOURCES = [{"kind": "ranking", "file": "ranked.trec"}, {"kind": "ann"}]


EVERY_4 = {"every_steps": 4}


def stage(negatives=SOURCES, refresh=EVERY_4, **more) -> Stage:
    settings = {
        "steps": 12,
        "batch_queries": 1,
        "optimizer": {"learning_rate": 1.0},
        "terms": {"query": {"negatives": negatives}},
    }
    return Stage.model_validate({**settings, "refresh": refresh, **more})


def mine(run: RunDir, stage: Stage, request: RefreshRequest) -> None:
    """Of step s, make tables whose candidates are s."""
    rows, ones = np.arange(2, dtype=np.int32), np.ones((2, 1))
    sources = generation.mined_sources(stage, dynamic_only=request.step > 0)
    tables = {
        key: NegativeTable("query", "document", rows, request.step * ones, ones, source.kind)
        for key, source in sources.items()
    }
    reports = {
        generation.table_name(key): {"candidates": 2, "new_share": None, "dropped": {}} for key in tables
    }
    about = {"stage": "a", "step": request.step, "weights": request.weights, **IDENTITY}
    publish_generation(run.generation("a", request.step), tables, reports, {"search": 0.5}, about, {}, {})


@pytest.fixture
def adoption_of(tmp_path):
    """An adoption of a stage, with given things made inline."""

    def make(made: Stage, world: World | None = None, adoption_logs=None) -> Refreshes:
        run, logs = RunDir(tmp_path), adoption_logs or {}
        executor = SyncExecutor(partial(mine, run, made))
        return Refreshes(run, "a", made, IDENTITY, world or World(), lambda product: executor, logs)

    return make


def candidates(adoption: Refreshes) -> dict:
    return {key: int(table.candidates[0, 0]) for key, table in adoption.negatives.tables.items()}


def weights(step: int) -> str:
    return f"{step:02}" * 32


def adopt(adoption: Refreshes, *steps: int) -> None:
    for step in steps:
        adoption.negatives.advance(step, weights(step))


def test_tables_mined_once_stay_beside_those_that_are_refreshed(adoption_of):
    adoption = adoption_of(stage())
    assert adoption.negatives.newest is None
    for steps, newest in ((0,), 0), ((4, 8), 8):
        adopt(adoption, *steps)
        expected = {STATIC: 0, REFRESHED: newest}
        assert candidates(adoption) == adoption.negatives.table_steps == expected
        assert adoption.negatives.newest == newest


def test_tables_that_another_process_cannot_open_are_not_adopted(adoption_of):
    class Doubtful(World):
        def all_agree(self, value):
            return False

    adoption = adoption_of(stage(), world=Doubtful())
    with pytest.raises(RuntimeError, match="a-00000000 could not be opened by another process"):
        adopt(adoption, 0)
    assert adoption.negatives.tables == {} and not adoption.negatives.run.decisions.exists()


@pytest.mark.parametrize(("negatives", "opened"), [(SOURCES, {0, 8}), (SOURCES[1:], {8})])
def test_after_an_interruption_the_tables_in_use_are_taken_up(adoption_of, negatives, opened):
    """Those mined once, of the first adoption, and those of the last; what lay between may be gone."""
    before = adoption_of(stage(negatives))
    adopt(before, 0, 4, 8)
    for step in {0, 4, 8} - opened:
        shutil.rmtree(before.negatives.run.generation("a", step))
    after = adoption_of(stage(negatives))
    after.negatives.restore(read_json_lines(before.negatives.run.decisions))
    assert candidates(after) == candidates(before)
    assert after.negatives.table_steps == before.negatives.table_steps


@pytest.mark.parametrize(("mode", "decided"), [("resumed", [9]), ("replay", [5])])
def test_adoptions_in_the_runs_own_log_are_not_decided_twice(adoption_of, mode, decided):
    """A resumed run repeats its own decisions up to step 5; a replay those of another run, and writes them
    down itself."""
    script = AdoptionLog({5: [4]}, {4: weights(4)}, mode)
    ready = {**EVERY_4, "mode": "async", "adopt": "when_ready"}
    adoption = adoption_of(stage(SOURCES[1:], ready), adoption_logs={"tables": script})
    for step in range(1, 10):
        adoption.negatives.advance(step, weights(step) if step in (4, 9) else None)
    assert adoption.negatives.table_steps == {("query", 0): 9 if mode == "resumed" else 4}
    assert [r["step"] for r in read_json_lines(adoption.negatives.run.decisions)] == decided
    assert next(r["step"] for r in read_json_lines(adoption.negatives.run.metrics)) == 5
