import json

import pytest
from helpers.stages import make_stage

from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.pipeline.refresher_process import refresh
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.generation import RefreshRequest, open_generation, write_requests
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import TIMEOUT_SECONDS

pytestmark = pytest.mark.usefixtures("clock")
STAGE = make_stage({"kind": "ann", "top_k": 5}, steps=20, refresh={"every_steps": 4, "mode": "async"})


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setitem(TIMEOUT_SECONDS, "external", 10)


@pytest.fixture
def recipe(small_recipe) -> Recipe:
    return small_recipe({"a": STAGE}, refresher="external")


@pytest.fixture
def run(recipe, tmp_path) -> RunDir:
    """A run that was started and then stopped."""
    made = RunDir(tmp_path / "run")
    begin(made, recipe, read_collection(recipe).digest)
    made.mark("stopped", "stage a, step 5")
    return made


def begin(run: RunDir, recipe: Recipe, digest: str) -> None:
    run.create(dump(recipe))
    run.environment.write_text(json.dumps({"data": {"digest": digest}}))


def test_requests_are_served_and_the_lock_records_the_end(recipe, run):
    checkpoint = publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, TrainingProgress("a", 4))
    write_requests(run, [RefreshRequest("tables", "a", 4, checkpoint.weights)])
    assert refresh(recipe, run.folder).startswith("no training for 10 seconds (process ")
    generation = open_generation(run.generation("a", 4), {"weights": checkpoint.weights})
    assert generation.tables["query", 0].candidates.shape == (15, 5)
    found = run.refresher.read()
    assert (found["status"], found["where"]) == ("finished", "waiting for requests")


def test_a_run_that_has_not_started_is_waited_for(recipe, tmp_path, clock):
    run, digest = RunDir(tmp_path / "run"), read_collection(recipe).digest

    def train():
        begin(run, recipe, digest)
        run.mark("finished", "the end")

    with pytest.raises(FileNotFoundError, match=f"no training has started in {run.folder} for 10 seconds"):
        refresh(recipe, run.folder)
    assert not run.folder.exists()
    clock.after(8, train)
    assert refresh(recipe, run.folder) == "the run has finished"


def test_the_run_of_another_recipe_is_refused(recipe, run):
    command = f"pyserini-ance refresh {run.recipe} .*--output {run.folder}"
    with pytest.raises(
        ValueError,
        match=rf"recipe.yaml differs from the recipe given \(seed: 42 in the run, 7 given\)\. .*: {command}$",
    ):
        refresh(recipe.model_copy(update={"seed": 7}), run.folder)
    assert not run.refresher.path.exists()
