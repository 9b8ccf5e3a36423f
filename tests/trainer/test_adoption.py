"""What is ordered of a stage's checkpoints, taken up and recorded, with tables of two queries and given dev measures."""

import re
import shutil

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.evaluation import publish_evaluation
from pyserini_ance.runs.generation import mined_sources, publish_generation, table_name
from pyserini_ance.runs.orders import Order
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.adoption import Adoption
from pyserini_ance.trainer.desks import Inline
from pyserini_ance.trainer.handover import Script

IDENTITY = {"collection": "c" * 64, "tokenization": "t" * 64}
STATIC, REFRESHED = ("query", 0), ("query", 1)
SOURCES = [{"kind": "run", "file": "ranked.trec"}, {"kind": "ann"}]


EVERY_4 = {"every_steps": 4}


def stage(negatives=SOURCES, refresh=EVERY_4, **more) -> Stage:
    settings = {"steps": 12, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}, "terms": {"query": {"negatives": negatives}}}
    return Stage.model_validate({**settings, "refresh": refresh, **more})


class Given:
    """Makes what is ordered: of step s, tables whose candidates are s, and a dev measure of s percent."""

    def __init__(self, run: RunDir, stage: Stage):
        self.run, self.stage, self.made = run, stage, []

    def __call__(self, order: Order, **made_from) -> None:
        self.made.append(order)
        if order.kind == "dev":
            publish_evaluation(self.run.evaluation("a", order.step), {"dev": order.step / 100}, order.weights, {"search": 0.5})
            return
        rows, ones = np.arange(2, dtype=np.int32), np.ones((2, 1))
        sources = mined_sources(self.stage, refreshed_only=order.step > 0)
        tables = {key: NegativeTable("query", "document", rows, order.step * ones, ones, source.kind) for key, source in sources.items()}
        reports = {table_name(key): {"candidates": 2, "new_share": None, "dropped": {}} for key in tables}
        about = {"stage": "a", "step": order.step, "weights": order.weights, **IDENTITY, **made_from}
        publish_generation(self.run.generation("a", order.step), tables, reports, {"search": 0.5}, about)


@pytest.fixture
def adoption_of(tmp_path):
    """An adoption of a stage, with `given` things made inline."""

    def make(made: Stage, world: World | None = None, given=None, scripts=None) -> Adoption:
        run = RunDir(tmp_path)
        desk = Inline(given or Given(run, made))
        return Adoption(run, "a", made, IDENTITY, world or World(), lambda product: desk, scripts or {})

    return make


def candidates(adoption: Adoption) -> dict:
    return {key: int(table.candidates[0, 0]) for key, table in adoption.tables.items()}


def weights(step: int) -> str:
    return f"{step:02}" * 32


def adopt(adoption: Adoption, *steps: int) -> None:
    for step in steps:
        adoption.proceed("tables", step, weights(step))


@pytest.mark.parametrize(
    ("made", "due"),
    [
        (stage(), {0: ["tables"], 4: ["tables"], 8: ["tables"]}),
        (stage(evaluate={"every_steps": 6}), {0: ["tables"], 4: ["tables"], 6: ["dev"], 8: ["tables"], 12: ["dev"]}),
        (stage(evaluate={"every_steps": 4}), {0: ["tables"], 4: ["tables", "dev"], 8: ["tables", "dev"], 12: ["dev"]}),
        (stage(SOURCES[:1], refresh=None), {0: ["tables"]}),
        (stage([{"kind": "random"}], refresh=None, evaluate={"every_steps": 12}), {12: ["dev"]}),
    ],
)
def test_what_is_due_when(adoption_of, made, due):
    adoption = adoption_of(made)
    assert {step: kinds for step in range(13) if (kinds := adoption.due(step))} == due


def test_tables_mined_once_stay_beside_those_that_are_refreshed(adoption_of):
    adoption = adoption_of(stage())
    adopt(adoption, 0)
    assert candidates(adoption) == {STATIC: 0, REFRESHED: 0} and adoption.table_steps == {STATIC: 0, REFRESHED: 0}
    adopt(adoption, 4, 8)
    assert candidates(adoption) == {STATIC: 0, REFRESHED: 8} and adoption.table_steps == {STATIC: 0, REFRESHED: 8}


def test_without_an_order_nothing_is_made_or_adopted(adoption_of):
    adoption = adoption_of(stage(evaluate={"every_steps": 6}))
    assert adoption.proceed("tables", 3, None) == adoption.proceed("dev", 3, None) == []
    assert adoption.tables == {} and not adoption.run.decisions.exists()


def test_an_adoption_is_decided_and_told(adoption_of, caplog):
    adoption = adoption_of(stage())
    with caplog.at_level("INFO"):
        adopt(adoption, 0, 4)
    decision = {"event": "adopt", "stage": "a", "step": 4, "of": 4, "folder": "negatives/a-00000004", "weights": weights(4)}
    assert read_json_lines(adoption.run.decisions)[1] == decision
    told = read_json_lines(adoption.run.metrics)[1]
    assert {key: told[key] for key in ("event", "stage", "step", "of", "age_steps")} == {
        "event": "generation", "stage": "a", "step": 4, "of": 4, "age_steps": 0
    }  # fmt: skip
    assert told["tables"] == {"query.1": {"candidates": 2, "new_share": None, "dropped": {}}}
    assert told["seconds"]["search"] == 0.5 and told["waited_seconds"] >= 0
    assert re.fullmatch(r"stage a, step 4: negatives of step 4; waited \d\.\d s; search 0.5 s, write .* s; query.1: 2 candidates", caplog.messages[1])


def test_a_dev_measure_is_decided_told_and_handed_on(adoption_of, caplog):
    adoption = adoption_of(stage(evaluate={"every_steps": 6, "measure": "R@5"}))
    with caplog.at_level("INFO"):
        assert adoption.proceed("dev", 6, weights(6)) == [(6, 0.06)]
    where = {"stage": "a", "step": 6, "of": 6, "value": 0.06}
    assert read_json_lines(adoption.run.decisions) == [{"event": "evaluate", **where, "weights": weights(6)}]
    assert read_json_lines(adoption.run.metrics) == [{"event": "dev", **where, "measure": "R@5", "parts": {"search": 0.5}}]
    assert caplog.messages == ["stage a, step 6: dev R@5 0.0600"]


def test_of_several_processes_the_first_records(adoption_of):
    class Second(World):
        def all_agree(self, value):
            return value

        def meet(self):
            pass

    adoption = adoption_of(stage(), world=Second(1, 2))
    adopt(adoption, 0)
    assert candidates(adoption) == {STATIC: 0, REFRESHED: 0}
    assert not adoption.run.decisions.exists() and not adoption.run.metrics.exists()


@pytest.mark.parametrize("key", IDENTITY)
def test_tables_of_other_data_are_not_adopted(adoption_of, key, tmp_path):
    given = Given(RunDir(tmp_path), stage())
    adoption = adoption_of(stage(), given=lambda order: given(order, **{key: "x" * 64}))
    with pytest.raises(RuntimeError, match=f"a-00000000 was mined with {key} xxxxxxxxxxxx, expected {IDENTITY[key][:12]}"):
        adopt(adoption, 0)
    assert adoption.tables == {} and not adoption.run.decisions.exists()


def test_tables_that_another_process_cannot_open_are_not_adopted(adoption_of):
    class Doubtful(World):
        def all_agree(self, value):
            return False

    adoption = adoption_of(stage(), world=Doubtful())
    with pytest.raises(RuntimeError, match="a-00000000 could not be opened by another process"):
        adopt(adoption, 0)
    assert adoption.tables == {} and not adoption.run.decisions.exists()


def test_a_dev_measure_of_other_weights_is_not_taken(adoption_of):
    adoption = adoption_of(stage(evaluate={"every_steps": 6}), given=lambda order: None)
    publish_evaluation(adoption.run.evaluation("a", 6), {"dev": 0.5}, weights(7), {})
    with pytest.raises(RuntimeError, match="a-00000006.json was measured with weights 070707070707, expected 060606060606; remove it"):
        adoption.proceed("dev", 6, weights(6))
    assert not adoption.run.decisions.exists()


@pytest.mark.parametrize(("negatives", "opened"), [(SOURCES, {0, 8}), (SOURCES[1:], {8})])
def test_after_an_interruption_the_tables_in_use_are_taken_up(adoption_of, negatives, opened):
    """Those mined once, of the first adoption, and those of the last; what lay between may be gone."""
    before = adoption_of(stage(negatives))
    adopt(before, 0, 4, 8)
    for step in {0, 4, 8} - opened:
        shutil.rmtree(before.run.generation("a", step))
    after = adoption_of(stage(negatives))
    after.recall(read_json_lines(before.run.decisions))
    assert candidates(after) == candidates(before) and after.table_steps == before.table_steps


def test_nothing_is_taken_up_before_the_first_adoption(adoption_of):
    adoption = adoption_of(stage())
    adoption.recall([])
    assert adoption.tables == {}


def test_tables_in_use_that_were_changed_since_are_refused(adoption_of):
    before = adoption_of(stage())
    adopt(before, 0)
    (table,) = before.run.generation("a", 0).rglob("query.1/candidates.npy")
    table.write_bytes(table.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(RuntimeError, match="query.1/candidates.npy is not what"):
        adoption_of(stage()).recall(read_json_lines(before.run.decisions))


def test_open_steps_are_those_of_all_kinds_until_the_end(adoption_of):
    late = {"run": "background", "adopt": {"after_steps": 8}}
    adoption = adoption_of(stage(SOURCES[1:], {"every_steps": 2, **late}, evaluate={"every_steps": 3, **late}))
    for kind, step in (("tables", 2), ("dev", 3), ("tables", 4)):
        adoption.proceed(kind, step, weights(step))
    assert adoption.open_steps == {2, 3, 4}
    adoption.proceed("tables", 10, None)
    assert adoption.open_steps == {3, 4} and adoption.table_steps == {("query", 0): 2}
    adoption.close()
    assert adoption.open_steps == set()


@pytest.mark.parametrize(("until", "decided"), [(5, [9]), (float("inf"), [5])])
def test_what_the_runs_own_log_told_is_not_decided_twice(adoption_of, until, decided):
    """A resumed run repeats its own decisions up to step 5; a replay those of another run, and writes them down itself."""
    script = Script({5: [4]}, until=until, weights={4: weights(4)})
    adoption = adoption_of(stage(SOURCES[1:], {**EVERY_4, "run": "background", "adopt": "ready"}), scripts={"tables": script})
    for step in range(1, 10):
        adoption.proceed("tables", step, weights(step) if step in (4, 9) else None)
    assert adoption.table_steps == {("query", 0): 9 if until == 5 else 4}
    assert [r["step"] for r in read_json_lines(adoption.run.decisions)] == decided
    assert [r["step"] for r in read_json_lines(adoption.run.metrics)][0] == 5
