"""What is ordered of a stage's checkpoints, taken up and recorded, and where a stopped stage goes on: its
newest checkpoint, the tables in use then, orders that are open, and decisions to repeat.

Checkpoints hold a few bytes here; candidates are the step of the checkpoint that they were mined with.
"""

import json
import shutil

import numpy as np
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.checkpoint import ENCODER, PROGRESS, Checkpoint, TrainingProgress
from pyserini_ance.runs.generation import mined_sources, publish_evaluation, publish_generation, table_name
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines, write_json
from pyserini_ance.storage.publish import publishing
from pyserini_ance.trainer.executors import AsyncExecutor
from pyserini_ance.trainer.products import queues_of
from pyserini_ance.trainer.refresh import AdoptionLog
from pyserini_ance.trainer.resume import check_same_run, read_replay, replay_logs, resume_stage

IDENTITY = {"collection": "c" * 64, "tokenization": "t" * 64}
STATIC, KEY = ("query", 0), ("query", 1)
SOURCES = [{"kind": "ranking", "file": "ranked.trec"}, {"kind": "ann"}]
LATE = {"mode": "async", "adopt": 6}
READY = {"mode": "async", "adopt": "when_ready"}


class Stopped:
    """What a killed process leaves of a stage of 20 steps: checkpoints, their products, its records."""

    def __init__(self, run: RunDir, refresh: dict, evaluate: dict | None):
        terms = {"query": {"negatives": SOURCES}}
        settings = {"steps": 20, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}, "terms": terms}
        products = {"refresh": {"every_steps": 4, **refresh}, "evaluate": evaluate}
        self.stage = Stage.model_validate({**settings, **products})
        self.run, self.log, self.weights = run, RunLog(run), {}

    def checkpoints(self, *steps: int, **place) -> None:
        for step in steps:
            with publishing(self.run.checkpoint("a", step), {}) as folder:
                (folder / ENCODER).mkdir()
                (folder / ENCODER / "model.safetensors").write_text(f"weights of step {step}")
                write_json(folder / PROGRESS, vars(TrainingProgress("a", step, **place)))
            self.weights[step] = Checkpoint.open(self.run.checkpoint("a", step)).weights

    def mined(self, *steps: int) -> None:
        for step in steps:
            arrays, report = (np.arange(2), np.full((2, 1), step), np.ones((2, 1))), {"candidates": 2}
            mined = mined_sources(self.stage, dynamic_only=step > 0)
            tables = {key: NegativeTable("query", "document", *arrays, mined[key].kind) for key in mined}
            report |= {"short_queries": 0, "new_share": None, "dropped": {}}
            reports = {table_name(key): report for key in tables}
            about = {"stage": "a", "step": step, "weights": self.weights[step], **IDENTITY}
            folder = self.run.generation("a", step)
            publish_generation(folder, tables, reports, {"search": 0.5}, about, {}, {})

    def decided(self, event: str, step: int, of: int, **values) -> None:
        made_from = {"checkpoint_step": of, **values, "weights": self.weights[of]}
        self.log.decide(event, stage="a", step=step, **made_from)

    def adopted(self, *moments: tuple[int, int]) -> None:
        """(step, of)"""
        for step, of in moments:
            self.decided("adopt", step, of, folder=f"negatives/a-{of:08d}")

    def measured(self, *moments: tuple[int, int]) -> None:
        """(step, of)"""
        for step, of in moments:
            publish_evaluation(self.run.evaluation("a", of), {"dev": 0.5}, self.weights[of], {})
            self.decided("evaluate", step, of, value=0.5)

    def refreshes(self, adoption_logs=None, world: World = World()) -> tuple:
        given = IDENTITY, world, lambda product: AsyncExecutor(self.run, None, "", World())
        return queues_of(self.run, "a", self.stage, *given, adoption_logs or {})

    def resume(self, adoption_logs=None) -> tuple[tuple[TrainingProgress, Checkpoint] | None, tuple]:
        adoption = self.refreshes(adoption_logs)
        return resume_stage(self.run, "a", adoption, self.log, World()), adoption


@pytest.fixture
def stopped(tmp_path):
    return lambda refresh, evaluate=None: Stopped(RunDir(tmp_path), refresh, evaluate)


def queues(adoption: tuple) -> dict:
    return {queue.kind: queue for queue in adoption}


def opened(adoption: tuple, kind: str = "tables") -> list[int]:
    return [request.step for request in queues(adoption)[kind].pending]


def in_use(adoption: tuple) -> dict:
    """By source, the step of its table's checkpoint."""
    return {key: int(table.candidates[0, 0]) for key, table in adoption[0].tables.items()}


def decided(made: Stopped) -> list[tuple]:
    return [(record["event"], record["step"]) for record in read_json_lines(made.run.decisions)]


def test_tables_mined_once_stay_beside_those_that_are_refreshed(stopped):
    made = stopped({})
    made.checkpoints(0, 4, 8)
    made.mined(0, 4, 8)
    negatives = (adoption := made.refreshes())[0]
    assert negatives.newest is None
    for step in (0, 4, 8):
        negatives.advance(step, made.weights[step])
        assert in_use(adoption) == negatives.table_steps == {STATIC: 0, KEY: step}
        assert negatives.newest == step


def test_tables_that_another_process_cannot_open_are_not_adopted(stopped):
    class Doubtful(World):
        def all_agree(self, value):
            return False

    made = stopped({})
    made.checkpoints(0)
    made.mined(0)
    adoption = made.refreshes(world=Doubtful())
    with pytest.raises(RuntimeError, match="a-00000000 could not be opened by another process"):
        adoption[0].advance(0, made.weights[0])
    assert in_use(adoption) == {} and not made.run.decisions.exists()


@pytest.mark.parametrize(("mode", "newest", "recorded"), [("resumed", 9, [9]), ("replay", 4, [5])])
def test_adoptions_in_the_runs_own_log_are_not_decided_twice(stopped, mode, newest, recorded):
    """A resumed run repeats its own decisions up to step 5; a replay another run's, and writes them down."""
    made = stopped(READY)
    made.checkpoints(4, 9)
    made.mined(4, 9)
    adoption = made.refreshes({"tables": AdoptionLog({5: [4]}, {4: made.weights[4]}, mode)})
    for step in range(1, 10):
        adoption[0].advance(step, made.weights.get(step))
    assert in_use(adoption) == {KEY: newest}
    assert [step for _, step in decided(made)] == recorded
    assert next(r["step"] for r in read_json_lines(made.run.metrics)) == 5


def test_the_tables_in_use_at_the_checkpoint_are_taken_up_not_later_ones(stopped):
    """Those mined once, of the first adoption, and those of the last; what lay between may be gone."""
    made = stopped(LATE)
    made.checkpoints(0, 4, 8, 12, 16)
    made.mined(0, 8, 12)
    made.adopted((0, 0), (10, 4), (14, 8), (18, 12))
    found, adoption = made.resume()
    assert found[0].step == 16 and in_use(adoption) == {STATIC: 0, KEY: 8}
    assert decided(made) == [("adopt", 0), ("adopt", 10), ("adopt", 14)] and opened(adoption) == [12]
    shutil.rmtree(made.run.generation("a", 8))
    message = "16 needs what is gone: .*a-00000008 is .* remove .*a-00000016 and"
    with pytest.raises(RuntimeError, match=message):
        made.resume()


def test_orders_that_were_open_are_open_again(stopped):
    made = stopped(LATE, {"every_steps": 3, "mode": "async", "adopt": 5})
    made.checkpoints(0, 3, 4, 6, 8, 9)
    made.mined(0)
    made.adopted((0, 0))
    made.measured((8, 3))
    _, adoption = made.resume()
    assert (opened(adoption), opened(adoption, "dev")) == ([4, 8], [6])
    assert {request.step for queue in adoption for request in queue.pending} == {4, 6, 8}
    pending = adoption[0].pending
    assert all(one.weights == made.weights[one.step] and one.is_awaited for one in pending)


def test_what_was_made_of_a_checkpoint_serves_when_the_checkpoint_has_been_removed(stopped):
    """Its adoption stands after the newest checkpoint: until then the trainer had no more need of it."""
    made = stopped(LATE, {"every_steps": 4, "mode": "async", "adopt": 7})
    made.checkpoints(0, 4, 8, 9)
    made.mined(0, 4)
    made.adopted((0, 0), (10, 4))
    made.measured((11, 4))
    shutil.rmtree(made.run.checkpoint("a", 4))
    found, adoption = made.resume()
    assert found[0].step == 9 and (opened(adoption), opened(adoption, "dev")) == ([4, 8], [4, 8])
    assert {request.weights for request in adoption[0].pending} == {made.weights[4], made.weights[8]}
    assert [request.step for request in adoption[0].collect(10)] == [4]
    assert [request.step for request in queues(adoption)["dev"].collect(11)] == [4]


def test_what_was_taken_when_it_was_ready_is_taken_again_at_the_same_steps(stopped):
    """It depended on time, and what was trained after it on it."""
    made = stopped(READY, {"every_steps": 4})
    made.checkpoints(0, 4, 8)
    made.mined(0, 4, 8)
    made.adopted((0, 0), (5, 4), (11, 8))
    made.measured((6, 4))
    found, adoption = made.resume()
    assert found[0].step == 8 and in_use(adoption) == {STATIC: 0, KEY: 4}
    assert decided(made) == [("adopt", 0), ("adopt", 5), ("adopt", 11), ("evaluate", 6)]
    assert adoption[0].adoption_log == AdoptionLog({11: [8]}, {8: made.weights[8]}, "resumed")
    adoption[0].submit(adoption[0].request(8, made.weights[8]))
    collected = {step: [r.step for r in adoption[0].collect(step)] for step in (8, 9, 10, 11)}
    assert collected == {8: [], 9: [], 10: [], 11: [8]}
    assert queues(adoption)["dev"].adoption_log == AdoptionLog() and opened(adoption, "dev") == []


def test_a_replay_goes_on_with_the_script_of_the_run_that_it_repeats(stopped):
    made = stopped(READY)
    made.checkpoints(0, 4, 8)
    made.mined(0, 4)
    made.adopted((0, 0), (7, 4), (9, 8))
    script = AdoptionLog({0: [0], 7: [4], 9: [8], 15: [12]}, dict.fromkeys((0, 4, 8, 12), "w"), "replay")
    _, adoption = made.resume({"tables": script})
    assert adoption[0].adoption_log is script and decided(made) == [("adopt", 0), ("adopt", 7)]


ADOPT = {"event": "adopt", "stage": "ance"}
RECORDS = [
    {**ADOPT, "stage": "bm25-neg", "step": 0, "checkpoint_step": 0, "weights": "u"},
    {"event": "stage_end", "stage": "bm25-neg", "step": 60, "result": "bm25-neg-00000060", "weights": "v"},
    {**ADOPT, "step": 0, "checkpoint_step": 0, "weights": "v"},
    {**ADOPT, "step": 47, "checkpoint_step": 40, "weights": "w"},
    {"event": "evaluate", "stage": "ance", "step": 51, "checkpoint_step": 40, "value": 0.5, "weights": "w"},
    {"event": "best", "stage": "ance", "step": 51, "checkpoint_step": 40, "value": 0.5},
    {"event": "resume", "environment": {}},
    {"event": "stage_end", "stage": "ance", "step": 120, "result": "ance-00000120", "weights": "x"},
]


def recipe(*overrides: str) -> Recipe:
    return load("demo/ance", *overrides)


def decisions(folder, records=RECORDS, recorded: Recipe | None = None):
    """Write a run's decisions, and its recipe next to them."""
    (folder / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if recorded:
        (folder / "recipe.yaml").write_text(dump(recorded))
    return folder / "decisions.jsonl"


def test_a_replay_may_have_another_name_and_machine_but_no_other_recipe(tmp_path):
    for override in ("name=other", "threads=2", "refresher=external"):
        path = decisions(tmp_path, recorded=recipe(override))
        assert read_replay(path, recipe()) == path.read_text()
    for override in ("seed=7", "stages.ance.optimizer.learning_rate=1e-4", "stages.ance.steps=30"):
        path = decisions(tmp_path, recorded=recipe(override))
        message = f"has another recipe; replay it with: pyserini-ance train {path.parent}/recipe.yaml"
        with pytest.raises(ValueError, match=message):
            read_replay(path, recipe())


def test_a_run_that_has_not_finished_or_is_missing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="decisions.jsonl: it records no end of stage ance; replay a fini"):
        read_replay(decisions(tmp_path, RECORDS[:-1]), recipe())
    with pytest.raises(FileNotFoundError, match=f"--replay {tmp_path}/no.jsonl: no such file; expected"):
        read_replay(tmp_path / "no.jsonl", recipe())


def test_the_logs_of_a_stage_hold_its_adoptions(tmp_path):
    tables = AdoptionLog({0: [0], 47: [40]}, {0: "v", 40: "w"}, "replay")
    dev = AdoptionLog({51: [40]}, {40: "w"}, "replay")
    assert replay_logs(decisions(tmp_path), "ance") == {"tables": tables, "dev": dev}
    tables, dev = AdoptionLog({0: [0]}, {0: "u"}, "replay"), AdoptionLog({}, {}, "replay")
    assert replay_logs(decisions(tmp_path), "bm25-neg") == {"tables": tables, "dev": dev}


def collection(text: str) -> Collection:
    split = Split("train", Texts(["q"], {"text": ["a"]}), Qrels.of([0], [0], [1], queries=1))
    return Collection(Texts(["d"], {"text": [text]}), {"train": split})


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create(dump(recipe()))
    made.environment.write_text(json.dumps({"data": {"digest": collection("one").digest}}))
    return made


def test_a_run_may_continue_on_another_machine_and_with_other_published_figures(run):
    figures = ["data.official.documents=7", "expect={test: {RR@10: 0.4}}"]
    for changes in ([], ["cache=/elsewhere", "device=cpu", "threads=3", "refresher=external"], figures):
        check_same_run(run, recipe(*changes), collection("one"))


@pytest.mark.parametrize(
    ("overrides", "text", "message"),
    [
        (["seed=7"], "one", r"differs from the recipe given.* train .*recipe\.yaml --output .* --resume"),
        (
            ["stages.ance.terms.query.negatives.0.top_k=20", "stages.bm25-neg.steps=5", "device=cpu"],
            "one",
            r"\(stages.bm25-neg.steps: 60 in the run, 5 given; stages.ance.terms.query.negatives.0.top_k: "
            r"200 in the run, 20 given\).* `train` with --overwrite",
        ),
        ([], "two", "the data .* is not that which .* was started with"),
    ],
)
def test_another_recipe_and_other_data_are_refused(run, overrides, text, message):
    with pytest.raises(ValueError, match=message) as error:
        check_same_run(run, recipe(*overrides), collection(text))
    assert "init_from" not in str(error.value)


def test_stages_in_another_order_are_another_recipe(run):
    other = recipe().model_copy(update={"stages": dict(reversed(recipe().stages.items()))})
    with pytest.raises(ValueError, match=r'\(order of stages.0: "bm25-neg" in the run, "ance" given'):
        check_same_run(run, other, collection("one"))
