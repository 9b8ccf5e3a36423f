import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import PREVIOUS_TABLES, PreviousStage, publish_generation
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.products import Refreshes

IDENTITY = {"collection": "c" * 64, "tokenization": "t" * 64}
SETTINGS = {"steps": 20, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}}
RUN, ANN, MOMENTUM = {"kind": "ranking", "file": "a.trec"}, {"kind": "ann"}, {"kind": "momentum"}


@pytest.fixture
def run(tmp_path) -> RunDir:
    """Stage a has ended: a static table, and one of steps 0, 4 and 8, of which the last was not adopted."""
    run = RunDir(tmp_path)
    for step in (0, 4, 8):
        publish(run, "a", step, [0, 1] if step == 0 else [1])
    for step in (0, 4):
        RunLog(run).decide("adopt", **adopted("a", step))
    RunLog(run).decide("stage_end", stage="a", step=20, result="a-00000012", weights=weights(12))
    return run


def weights(step: int) -> str:
    return f"{step:064d}"


def adopted(stage: str, step: int) -> dict:
    folder = f"negatives/{stage}-{step:08d}"
    return {"stage": stage, "step": step, "checkpoint_step": step, "folder": folder, "weights": weights(step)}


def publish(run: RunDir, stage: str, step: int, positions: list[int], **more) -> None:
    table = NegativeTable("query", "document", np.arange(2), np.full((2, 1), step), np.ones((2, 1)), "x")
    about = {"stage": stage, "step": step, "weights": weights(step), **IDENTITY, **more}
    publish_generation(run.generation(stage, step), {("query", p): table for p in positions}, {}, {}, about)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    a = {**SETTINGS, "terms": {"query": {"negatives": [RUN, ANN]}}, "refresh": {"every_steps": 4}}
    stages = {"a": a, "b": {**SETTINGS, "terms": {"query": {"negatives": [MOMENTUM]}}}}
    parts = {"data": {"kind": "beir", "folder": "some/where"}, "encoder": {"model": "some-model"}}
    return Recipe.model_validate({"name": "two", "bm25": None, "stages": stages, **parts})


def test_static_and_dynamic_tables_last_in_use_are_found(run, recipe):
    previous_stage = PreviousStage.of(recipe, run, "b", World())
    assert (previous_stage.result, previous_stage.weights) == ("a-00000012", weights(12))
    tables = previous_stage.tables(IDENTITY)
    found = {key: int(table.candidates[0, 0]) for key, table in tables.items()}
    assert found == {("query", 0): 0, ("query", 1): 4}
    origins = [list(table.origin_counts()) for table in tables.values()]
    assert origins == [["x of a-00000000"], ["x of a-00000004"]]


def test_a_stage_that_has_not_ended_is_an_error(run, recipe):
    run.decisions.unlink()
    with pytest.raises(RuntimeError, match="records no end of stage a, which the next stage starts from"):
        PreviousStage.of(recipe, run, "b", World())


@pytest.mark.parametrize("changed", [False, True])
def test_a_manifest_names_the_previous_tables_that_were_used(changed, run, recipe):
    previous_stage = PreviousStage.of(recipe, run, "b", World())
    publish(run, "b", 0, [0], **{PREVIOUS_TABLES: "0" * 64 if changed else previous_stage.digest()})
    settings = recipe.stages["b"], IDENTITY, World(), lambda _: None, {}, previous_stage
    negatives = Refreshes(run, "b", *settings).negatives
    if changed:
        with pytest.raises(RuntimeError, match="b-00000000 was mined with previous tables 000000000000, exp"):
            negatives.restore([adopted("b", 0)])
    else:
        negatives.restore([adopted("b", 0)])
        assert negatives.tables.keys() == {("query", 0)}
