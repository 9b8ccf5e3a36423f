"""The refresher's own job in this process: what it waits for, refuses, makes, and what it says of itself."""

import json

import pytest

from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.experiment.prepare import read_collection
from pyserini_ance.experiment.refreshing import refresh
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Place, publish_checkpoint
from pyserini_ance.runs.generation import open_generation
from pyserini_ance.runs.orders import Order, write_orders
from pyserini_ance.runs.rundir import RunDir

pytestmark = pytest.mark.usefixtures("clock")
STAGE = {
    "steps": 20,
    "batch_queries": 4,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "depth": 5}]}},
    "refresh": {"every_steps": 4, "run": "background"},
}


@pytest.fixture
def recipe(small_recipe) -> Recipe:
    return small_recipe({"a": STAGE}, refresher={"start": "elsewhere", "device": "cpu", "leave_after_seconds": 10})


@pytest.fixture
def run(recipe, tmp_path) -> RunDir:
    """A run that has begun, and then stopped."""
    made = RunDir(tmp_path / "run")
    begin(made, recipe, read_collection(recipe).digest)
    made.mark("stopped", "stage a, step 5")
    return made


def begin(run: RunDir, recipe: Recipe, digest: str) -> None:
    run.create(dump(recipe))
    run.environment.write_text(json.dumps({"data": {"digest": digest}}))


def test_what_is_ordered_is_made_and_the_post_says_how_it_ended(recipe, run):
    checkpoint = publish_checkpoint(run, start_encoder(recipe.encoder, 0), None, Place("a", 4))
    write_orders(run, [Order("tables", "a", 4, checkpoint.weights)])
    assert refresh(recipe, run.folder).startswith("training has not been heard of for 10 seconds (process ")
    generation = open_generation(run.generation("a", 4), {"weights": checkpoint.weights})
    assert generation.tables["query", 0].candidates.shape == (15, 5)
    assert (run.refresher.read()["status"], run.refresher.read()["where"]) == ("finished", "waiting for orders")


def test_a_run_that_has_not_begun_is_waited_for(recipe, tmp_path, clock, caplog):
    run, digest = RunDir(tmp_path / "run"), read_collection(recipe).digest

    def train():
        begin(run, recipe, digest)
        run.mark("finished", "the end")

    clock.after(8, train)
    with caplog.at_level("INFO"):
        assert refresh(recipe, run.folder) == "the run has finished"
    assert f"waiting for training to begin: python -m pyserini_ance.train small --output {run.folder}" in caplog.messages


def test_a_run_that_does_not_begin_is_not_waited_for_forever(recipe, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"no training has begun in {tmp_path}/run for 10 seconds"):
        refresh(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_run_of_another_recipe_is_refused(recipe, run):
    command = f"python -m pyserini_ance.refresh {run.recipe} .*--output {run.folder}"
    with pytest.raises(ValueError, match=f"recipe.yaml differs from the recipe given; go on with the same one: {command}$"):
        refresh(recipe.model_copy(update={"seed": 7}), run.folder)
    assert not run.refresher.path.exists()


def test_other_data_is_refused_and_said_at_the_post(recipe, run):
    run.environment.write_text(json.dumps({"data": {"digest": "d" * 64}}))
    with pytest.raises(ValueError, match=r"the data is not what .* was begun with \(digest .*, then dddddddddddd\)"):
        refresh(recipe, run.folder)
    found = run.refresher.read()
    assert found["status"] == "failed" and "dddddddddddd" in found["reason"]


def test_what_a_refresher_of_another_host_left_half_done_is_removed(recipe, run):
    dead = {"pid": 7, "host": "elsewhere", "started": 5}
    run.refresher.path.write_text(json.dumps({"layout": 2, "status": "running", "where": "tables", **dead, "term": 1, "beat": 3, "time": 0}))
    for stage, owner in (("a", dead), ("b", {**dead, "pid": 8})):
        run.generation(stage, 4).mkdir(parents=True)
        (run.generation(stage, 4) / "claim.json").write_text(json.dumps(owner))
    refresh(recipe, run.folder)
    assert [path.name for path in run.negatives.iterdir()] == ["b-00000004"]
