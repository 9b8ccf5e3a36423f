"""What is ordered of a stage's checkpoints, taken up and recorded, with tables of two queries and given dev
measures."""

import re
import shutil

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs import generation
from pyserini_ance.runs.generation import RefreshRequest, publish_evaluation, publish_generation
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


class Given:
    """Makes what is ordered: of step s, tables whose candidates are s, and a dev measure of s percent."""

    def __init__(self, run: RunDir, stage: Stage):
        self.run, self.stage, self.made = run, stage, []

    def __call__(self, request: RefreshRequest, **made_from) -> None:
        self.made.append(request)
        if request.kind == "dev":
            path, value = self.run.evaluation("a", request.step), {"dev": request.step / 100}
            return publish_evaluation(path, value, request.weights, {"search": 0.5})
        rows, ones = np.arange(2, dtype=np.int32), np.ones((2, 1))
        sources = generation.mined_sources(self.stage, dynamic_only=request.step > 0)
        tables = {
            key: NegativeTable("query", "document", rows, request.step * ones, ones, source.kind)
            for key, source in sources.items()
        }
        reports = {
            generation.table_name(key): {"candidates": 2, "new_share": None, "dropped": {}} for key in tables
        }
        about = {"stage": "a", "step": request.step, "weights": request.weights, **IDENTITY, **made_from}
        folder = self.run.generation("a", request.step)
        publish_generation(folder, tables, reports, {"search": 0.5}, about, {}, {})


@pytest.fixture
def adoption_of(tmp_path):
    """An adoption of a stage, with `given` things made inline."""

    def make(made: Stage, world: World | None = None, given=None, adoption_logs=None) -> Refreshes:
        run, logs = RunDir(tmp_path), adoption_logs or {}
        executor = SyncExecutor(given or Given(run, made))
        return Refreshes(run, "a", made, IDENTITY, world or World(), lambda product: executor, logs)

    return make


def candidates(adoption: Refreshes) -> dict:
    return {key: int(table.candidates[0, 0]) for key, table in adoption.negatives.tables.items()}


def weights(step: int) -> str:
    return f"{step:02}" * 32


def adopt(adoption: Refreshes, *steps: int) -> None:
    for step in steps:
        adoption.negatives.advance(step, weights(step))


UNMINED = [{"kind": "random"}]


@pytest.mark.parametrize(
    ("made", "tables", "dev"),
    [
        (stage(), [0, 4, 8], []),
        (stage(evaluate={"every_steps": 6}), [0, 4, 8], [0, 6, 12]),
        (stage(evaluate={"every_steps": 4}), [0, 4, 8], [0, 4, 8, 12]),
        (stage(SOURCES[:1], refresh=None), [0], []),
        (stage(UNMINED, refresh=None, evaluate={"every_steps": 12}), [], [0, 12]),
        (stage(UNMINED, refresh=None, evaluate={"every_steps": 12, "keep_best": False}), [], [12]),
    ],
)
def test_what_is_due_when(adoption_of, made, tables, dev):
    due = {
        queue.kind: [step for step in range(13) if queue.is_due(step)] for queue in adoption_of(made).queues
    }
    assert due == {"tables": tables, **({"dev": dev} if dev else {})}


def test_tables_mined_once_stay_beside_those_that_are_refreshed(adoption_of):
    adoption = adoption_of(stage())
    assert adoption.negatives.newest is None
    for steps, newest in ((0,), 0), ((4, 8), 8):
        adopt(adoption, *steps)
        expected = {STATIC: 0, REFRESHED: newest}
        assert candidates(adoption) == adoption.negatives.table_steps == expected
        assert adoption.negatives.newest == newest


def test_an_adoption_is_decided_and_told(adoption_of, caplog):
    adoption = adoption_of(stage())
    with caplog.at_level("DEBUG"):
        adopt(adoption, 0, 4)
    where = {"stage": "a", "step": 4, "checkpoint_step": 4}
    decision = {"event": "adopt", **where, "folder": "negatives/a-00000004", "weights": weights(4)}
    assert read_json_lines(adoption.negatives.run.decisions)[1] == decision
    told = read_json_lines(adoption.negatives.run.metrics)[1]
    assert {**told, "event": "generation", **where, "age_steps": 0} == told
    assert told["tables"] == {"query.1": {"candidates": 2, "new_share": None, "dropped": {}}}
    assert told["seconds"]["search"] == 0.5 and told["waited_seconds"] >= 0
    line = r"stage a, step 4: negatives of step 4; waited \d\.\d s; search 0.5 s, write .*; query.1: 2 cand"
    assert re.match(line, caplog.messages[1])


def test_a_dev_measure_is_decided_told_and_handed_on(adoption_of, caplog):
    adoption = adoption_of(stage(evaluate={"every_steps": 6, "measure": "R@5"}))
    with caplog.at_level("INFO"):
        assert adoption.dev.advance(6, weights(6)) == [(6, 0.06)]
    where = {"stage": "a", "step": 6, "checkpoint_step": 6, "value": 0.06}
    run, decision = adoption.negatives.run, {"event": "evaluate", **where, "weights": weights(6)}
    assert read_json_lines(run.decisions) == [decision]
    told = {"event": "dev", **where, "measure": "R@5", "parts": {"search": 0.5}}
    assert read_json_lines(run.metrics) == [told]
    assert caplog.messages == ["stage a, step 6: dev R@5 0.0600"]


def test_of_several_processes_the_first_records(adoption_of):
    class Second(World):
        def all_agree(self, value):
            return value

        def barrier(self):
            pass

    adoption = adoption_of(stage(), world=Second(1, 2))
    adopt(adoption, 0)
    assert candidates(adoption) == {STATIC: 0, REFRESHED: 0}
    assert not adoption.negatives.run.decisions.exists() and not adoption.negatives.run.metrics.exists()


def test_products_of_other_data_or_weights_are_not_adopted(adoption_of, tmp_path):
    given, run = Given(RunDir(tmp_path), stage()), RunDir(tmp_path)
    for key in IDENTITY:
        shutil.rmtree(run.negatives, ignore_errors=True)
        adoption = adoption_of(stage(), given=lambda request, key=key: given(request, **{key: "x" * 64}))
        message = f"a-00000000 was mined with {key} xxxxxxxxxxxx, expected {IDENTITY[key][:12]}"
        with pytest.raises(RuntimeError, match=message):
            adopt(adoption, 0)
        assert adoption.negatives.tables == {}
    adoption = adoption_of(stage(evaluate={"every_steps": 6}), given=lambda request: None)
    publish_evaluation(run.evaluation("a", 6), {"dev": 0.5}, weights(7), {})
    message = "a-00000006.json was measured with weights 070707070707, expected 060606060606; remove it"
    with pytest.raises(RuntimeError, match=message):
        adoption.dev.advance(6, weights(6))
    assert not run.decisions.exists()


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


def test_open_steps_are_those_of_all_kinds_until_the_end(adoption_of):
    late = {"mode": "async", "adopt": {"after_steps": 8}}
    made = stage(SOURCES[1:], {"every_steps": 2, **late}, evaluate={"every_steps": 3, **late})
    adoption = adoption_of(made)
    for queue, step in ((adoption.negatives, 2), (adoption.dev, 3), (adoption.negatives, 4)):
        queue.advance(step, weights(step))
    assert adoption.pending_steps == {2, 3, 4}
    adoption.negatives.advance(10, None)
    assert adoption.pending_steps == {3, 4} and adoption.negatives.table_steps == {("query", 0): 2}
    for queue in adoption.queues:
        queue.close()
    assert adoption.pending_steps == set()


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
