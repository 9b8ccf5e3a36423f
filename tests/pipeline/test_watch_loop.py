from contextlib import ExitStack

import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline.refresher_process import serve_requests
from pyserini_ance.refresher.refresher import CheckpointRemoved
from pyserini_ance.runs.generation import RefreshRequest, publish_evaluation, write_requests
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import publishing

pytestmark = pytest.mark.usefixtures("clock")


def tables(step: int, is_awaited: bool = True) -> RefreshRequest:
    return RefreshRequest("tables", "a", step, "w", is_awaited)


def dev(step: int, is_awaited: bool = True) -> RefreshRequest:
    return RefreshRequest("dev", "a", step, "w", is_awaited)


class StubRefresher:
    """A refresher that publishes an empty product for each request.

    `before` is called first, and may raise.
    """

    def __init__(self, run: RunDir, before=lambda request: None):
        self.run, self.before, self.made = run, before, []

    def make(self, request: RefreshRequest) -> None:
        self.before(request)
        self.made.append(request)
        if request.kind == "dev":
            publish_evaluation(
                self.run.evaluation(request.stage, request.step), {"dev": 0.5}, request.weights, {}
            )
            return
        with publishing(self.run.generation(request.stage, request.step), {}):
            pass

    def report(self, task: str) -> None:
        pass


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path)
    made.create("name: a\n")
    return made


def watch(
    run: RunDir, refresher: StubRefresher, timeout_seconds: float = 5, world: World | None = None
) -> str:
    return serve_requests(run, refresher, timeout_seconds, world or World())


def test_what_is_ordered_meanwhile_is_made_next(run):
    def ordered(request):
        if request == tables(4):
            write_requests(run, [tables(4), dev(4), tables(8)])
        else:
            run.mark("finished", "the end")

    write_requests(run, [tables(4)])
    refresher = StubRefresher(run, ordered)
    watch(run, refresher, 60)
    assert refresher.made == [tables(4), tables(8), dev(4)]


def test_as_long_as_training_lives_it_stays(run, clock):
    start, training = clock.now, ExitStack()
    training.enter_context(RunDir(run.folder).trainer.held())
    clock.after(40, training.close)
    assert "no training for 20 seconds" in watch(run, StubRefresher(run), 20)
    assert 59 < clock.now - start < 61


def test_only_an_order_that_was_withdrawn_may_have_lost_its_checkpoint(run):
    def lost(request):
        raise CheckpointRemoved(f"a-{request.step:08d} was removed")

    def withdrawn(request):
        write_requests(run, [])
        run.mark("finished", "the end")
        lost(request)

    write_requests(run, [tables(4)])
    with pytest.raises(CheckpointRemoved, match="a-00000004 was removed"):
        watch(run, StubRefresher(run, lost))
    assert watch(run, StubRefresher(run, withdrawn), 60) == "the run has finished"


def works(world: World, folder) -> tuple[str, list[RefreshRequest]]:
    """Each process publishes under a folder of its own; the first one's is the run."""
    run = RunDir(folder)
    refresher = StubRefresher(RunDir(folder / f"{world.rank}") if world.rank else run)
    return watch(run, refresher, 0.05, world), refresher.made


def test_processes_make_the_same_and_leave_together(run_processes, run):
    run.mark("stopped", "stage a, step 5")
    write_requests(run, [tables(4), dev(4), dev(8, False)])
    first, second = run_processes(2, works, run.folder)
    assert (
        first == second and first[1] == [tables(4), dev(4), dev(8, False)] and "no training for" in first[0]
    )
