import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import (
    PREVIOUS_TABLES,
    PreviousStage,
    RefreshRequest,
    newest_generation_before,
    next_requests,
    open_evaluation,
    open_generation,
    publish_evaluation,
    publish_generation,
)
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import MANIFEST, publishing
from pyserini_ance.trainer.products import queues_of

MADE_FROM = {"weights": "a" * 64, "collection": "b" * 64}
ABOUT = {"stage": "ance", "step": 10, **MADE_FROM}
REPORTS = {"query.0": {"candidates": 6, "new_share": None, "dropped": {}}}
IDENTITY = {"collection": "c" * 64, "tokenization": "t" * 64}
SETTINGS = {"steps": 20, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}}
RUN, ANN, MOMENTUM = {"kind": "ranking", "file": "a.trec"}, {"kind": "ann"}, {"kind": "momentum"}


def table(first: int) -> NegativeTable:
    candidates = np.arange(first, first + 6, dtype=np.int32).reshape(2, 3)
    anchors, scores = np.arange(2, dtype=np.int32), candidates.astype(np.float32)
    return NegativeTable("query", "document", anchors, candidates, scores, "ann")


def publish(folder, tables=None, **about) -> None:
    tables = tables or {("query", 0): table(0)}
    publish_generation(folder, tables, REPORTS, {"search": 1.23456}, {**ABOUT, **about})


def test_tables_come_back_under_their_keys(tmp_path):
    tables = {("query", 0): table(0), ("query", 10): table(10), ("other.term", 1): table(20)}
    publish(tmp_path / "g", tables)
    opened = open_generation(tmp_path / "g", MADE_FROM)
    read, written = ({key: t.candidates.tolist() for key, t in ts.items()} for ts in (opened.tables, tables))
    assert read == written
    assert (opened.folder, opened.step, opened.weights) == (tmp_path / "g", 10, "a" * 64)
    assert opened.report["tables"] == REPORTS
    assert opened.report["seconds"]["search"] == 1.235 and "write" in opened.report["seconds"]


@pytest.mark.parametrize("key", MADE_FROM)
def test_tables_of_other_weights_or_data_are_an_error(tmp_path, key):
    publish(tmp_path / "g")
    with pytest.raises(RuntimeError, match=f"g was mined with {key} {MADE_FROM[key][:12]}, expected ccccc"):
        open_generation(tmp_path / "g", {**MADE_FROM, key: "c" * 64})


def test_the_generation_before_is_the_last_complete_one_of_its_stage(run):
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
        words = text.split()
        return [RefreshRequest(kinds[w[0]], "ance", int(w[1:].rstrip("?")), "w", w[-1] != "?") for w in words]

    for request in parsed(made):
        with publishing(run.generation(request.stage, request.step), {}):
            pass
    assert next_requests(parsed(requests), run) == parsed(expected)


def test_an_evaluation_of_other_weights_is_an_error(run):
    publish_evaluation(run.evaluation("ance", 40), {"dev": 0.5}, "w", {})
    assert open_evaluation(run.evaluation("ance", 40), "w")["value"] == 0.5
    with pytest.raises(RuntimeError, match=r"ance-00000040.json was measured with weights w, expected other"):
        open_evaluation(run.evaluation("ance", 40), "other")


@pytest.fixture
def ended(run) -> RunDir:
    """Stage a has ended: a static table, and one of steps 0, 4 and 8, of which the last was not adopted."""
    for step in (0, 4, 8):
        publish_tables(run, "a", step, [0, 1] if step == 0 else [1])
    for step in (0, 4):
        RunLog(run).decide("adopt", **adopted("a", step))
    RunLog(run).decide("stage_end", stage="a", step=20, result="a-00000012", weights=weights(12))
    return run


def weights(step: int) -> str:
    return f"{step:064d}"


def adopted(stage: str, step: int) -> dict:
    folder = f"negatives/{stage}-{step:08d}"
    return {"stage": stage, "step": step, "checkpoint_step": step, "folder": folder, "weights": weights(step)}


def publish_tables(run: RunDir, stage: str, step: int, positions: list[int], **more) -> None:
    table = NegativeTable("query", "document", np.arange(2), np.full((2, 1), step), np.ones((2, 1)), "x")
    about = {"stage": stage, "step": step, "weights": weights(step), **IDENTITY, **more}
    publish_generation(run.generation(stage, step), {("query", p): table for p in positions}, {}, {}, about)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    a = {**SETTINGS, "terms": {"query": {"negatives": [RUN, ANN]}}, "refresh": {"every_steps": 4}}
    stages = {"a": a, "b": {**SETTINGS, "terms": {"query": {"negatives": [MOMENTUM]}}}}
    parts = {"data": {"kind": "beir", "folder": "some/where"}, "encoder": {"model": "some-model"}}
    return Recipe.model_validate({"name": "two", "bm25": None, "stages": stages, **parts})


def test_static_and_dynamic_tables_last_in_use_are_found(ended, recipe):
    previous_stage = PreviousStage.of(recipe, ended, "b", World())
    assert (previous_stage.result, previous_stage.weights) == ("a-00000012", weights(12))
    tables = previous_stage.tables(IDENTITY)
    found = {key: int(table.candidates[0, 0]) for key, table in tables.items()}
    assert found == {("query", 0): 0, ("query", 1): 4}
    origins = [list(table.origin_counts()) for table in tables.values()]
    assert origins == [["x of a-00000000"], ["x of a-00000004"]]


def test_a_stage_that_has_not_ended_is_an_error(ended, recipe):
    ended.decisions.unlink()
    with pytest.raises(RuntimeError, match="records no end of stage a, which the next stage starts from"):
        PreviousStage.of(recipe, ended, "b", World())


@pytest.mark.parametrize("changed", [False, True])
def test_a_manifest_names_the_previous_tables_that_were_used(changed, ended, recipe):
    previous_stage = PreviousStage.of(recipe, ended, "b", World())
    publish_tables(ended, "b", 0, [0], **{PREVIOUS_TABLES: "0" * 64 if changed else previous_stage.digest()})
    settings = recipe.stages["b"], IDENTITY, World(), lambda _: None, {}, previous_stage
    negatives = queues_of(ended, "b", *settings)[0]
    if changed:
        with pytest.raises(RuntimeError, match="b-00000000 was mined with previous tables 000000000000, exp"):
            negatives.restore([adopted("b", 0)])
    else:
        negatives.restore([adopted("b", 0)])
        assert negatives.tables.keys() == {("query", 0)}
