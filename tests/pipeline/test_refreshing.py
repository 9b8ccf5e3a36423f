import json
import shutil
from contextlib import ExitStack, nullcontext

import pytest
from helpers.stages import make_stage

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.pipeline.refresher_process import refresh, serve_requests
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import CheckpointRemoved
from pyserini_ance.runs.checkpoint import TrainingProgress, publish_checkpoint
from pyserini_ance.runs.generation import RefreshRequest, open_generation, publish_evaluation, write_requests
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import publishing
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
    made.trainer.mark("stopped", "stage a, step 5")
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
        run.trainer.mark("finished", "the end")

    with pytest.raises(FileNotFoundError, match=f"no training has started in {run.folder} for 10 seconds"):
        refresh(recipe, run.folder)
    assert not run.folder.exists()
    clock.after(8, train)
    assert refresh(recipe, run.folder) == "the run has finished"


def test_the_run_of_another_recipe_is_refused(recipe, run):
    command = f"pyserini-ance refresh {run.recipe} .*--output {run.folder}"
    with pytest.raises(ValueError, match=rf"differs .* \(seed: 42 in the run, 7 given\)\. .*: {command}$"):
        refresh(recipe.model_copy(update={"seed": 7}), run.folder)
    assert not run.refresher.path.exists()


def tables(step: int, is_awaited: bool = True) -> RefreshRequest:
    return RefreshRequest("tables", "a", step, "w", is_awaited)


def dev(step: int, is_awaited: bool = True) -> RefreshRequest:
    return RefreshRequest("dev", "a", step, "w", is_awaited)


class StubRefresher:
    """Publishes an empty product for each request; `before` is called first, and may raise."""

    def __init__(self, run: RunDir, before=lambda request: None):
        self.run, self.before, self.made = run, before, []

    def make(self, request: RefreshRequest) -> None:
        self.before(request)
        self.made.append(request)
        if request.kind == "dev":
            path = self.run.evaluation(request.stage, request.step)
            publish_evaluation(path, {"dev": 0.5}, request.weights, {})
            return
        with publishing(self.run.generation(request.stage, request.step), {}):
            pass

    def report(self, task: str) -> None:
        pass


@pytest.fixture
def served(tmp_path) -> RunDir:
    made = RunDir(tmp_path)
    made.create("name: a\n")
    return made


def watch(run: RunDir, refresher: StubRefresher, timeout_seconds: float = 5, world=None) -> str:
    world = world or World()
    with run.refresher.held("preparing") if world.is_main else nullcontext():
        return serve_requests(run, refresher, timeout_seconds, world)


def test_what_is_ordered_meanwhile_is_made_next(served):
    def ordered(request):
        if request == tables(4):
            write_requests(served, [tables(4), dev(4), tables(8)])
        else:
            served.trainer.mark("finished", "the end")

    write_requests(served, [tables(4)])
    refresher = StubRefresher(served, ordered)
    watch(served, refresher, 60)
    assert refresher.made == [tables(4), tables(8), dev(4)]


def test_a_run_that_was_made_anew_in_its_folder_is_not_served(served):
    def anew(request):
        shutil.rmtree(served.folder)
        served.create("name: b\n")
        write_requests(served, [tables(8)])

    write_requests(served, [tables(4)])
    refresher = StubRefresher(served, anew)
    assert watch(served, refresher, 60).endswith("was removed, or made anew")
    assert refresher.made == [tables(4)]


def test_as_long_as_training_lives_it_stays(served, clock):
    start, training = clock.now, ExitStack()
    training.enter_context(RunDir(served.folder).trainer.held())
    clock.after(40, training.close)
    assert "no training for 20 seconds" in watch(served, StubRefresher(served), 20)
    assert 59 < clock.now - start < 61


def test_only_an_order_that_was_withdrawn_may_have_lost_its_checkpoint(served):
    def lost(request):
        raise CheckpointRemoved(f"a-{request.step:08d} was removed")

    def withdrawn(request):
        write_requests(served, [])
        served.trainer.mark("finished", "the end")
        lost(request)

    write_requests(served, [tables(4)])
    with pytest.raises(CheckpointRemoved, match="a-00000004 was removed"):
        watch(served, StubRefresher(served, lost))
    assert watch(served, StubRefresher(served, withdrawn), 60) == "the run has finished"


def works(world: World, folder) -> tuple[str, list[RefreshRequest]]:
    """Each process publishes under a folder of its own; the first one's is the run."""
    run = RunDir(folder)
    refresher = StubRefresher(RunDir(folder / f"{world.rank}") if world.rank else run)
    return watch(run, refresher, 0.05, world), refresher.made


def test_processes_make_the_same_and_leave_together(run_processes, served):
    served.trainer.mark("stopped", "stage a, step 5")
    write_requests(served, [tables(4), dev(4), dev(8, False)])
    first, second = run_processes(2, works, served.folder)
    assert first == second and "no training for" in first[0]
    assert first[1] == [tables(4), dev(4), dev(8, False)]
