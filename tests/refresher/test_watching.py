"""The watch loop, with a refresher that publishes what it is told: what it makes in which order, and when it leaves."""

import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.models import RefresherProcess
from pyserini_ance.refresher.refresher import CheckpointGone
from pyserini_ance.refresher.watching import Watching
from pyserini_ance.runs.evaluation import publish_evaluation
from pyserini_ance.runs.orders import Order, write_orders
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import publishing

pytestmark = pytest.mark.usefixtures("clock")


def tables(step: int, awaited: bool = True) -> Order:
    return Order("tables", "a", step, "w", awaited)


def dev(step: int, awaited: bool = True) -> Order:
    return Order("dev", "a", step, "w", awaited)


class Given:
    """Publishes something as what is ordered. `before` is called with each order, and may raise."""

    def __init__(self, run: RunDir, before=lambda order: None):
        self.run, self.before, self.made, self.said = run, before, [], []

    def make(self, order: Order) -> None:
        self.before(order)
        self.made.append(order)
        if order.kind == "dev":
            publish_evaluation(self.run.evaluation(order.stage, order.step), {"dev": 0.5}, order.weights, {})
            return
        with publishing(self.run.generation(order.stage, order.step), {}):
            pass

    def say(self, doing: str) -> None:
        self.said.append(doing)


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path)
    made.create("name: a\n")
    return made


def watch(run: RunDir, refresher: Given, leave_after_seconds: float = 5, world: World | None = None) -> str:
    settings = RefresherProcess().model_copy(update={"leave_after_seconds": leave_after_seconds})
    return Watching(run, refresher, settings, world or World()).work()


def test_it_leaves_when_the_run_has_finished(run):
    run.mark("finished", "the end")
    refresher = Given(run)
    assert watch(run, refresher, 60) == "the run has finished"
    assert refresher.made == [] and refresher.said == ["waiting for orders"]


def test_it_makes_tables_first_the_awaited_then_the_newest(run):
    write_orders(run, [tables(4, False), dev(8, False), tables(12), tables(16, False), dev(16, False)])
    refresher = Given(run, lambda order: run.mark("finished", "the end") if order == dev(16, False) else None)
    assert watch(run, refresher, 60) == "the run has finished"
    assert refresher.made == [tables(12), tables(16, False), dev(16, False), tables(4, False), dev(8, False)]


def test_what_is_ordered_meanwhile_is_made_next(run):
    def ordered(order):
        if order == tables(4):
            write_orders(run, [tables(4), dev(4), tables(8)])
        else:
            run.mark("finished", "the end")

    write_orders(run, [tables(4)])
    refresher = Given(run, ordered)
    watch(run, refresher, 60)
    assert refresher.made == [tables(4), tables(8), dev(4)]


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_what_a_stopped_training_left_open_is_made_before_it_leaves(run, status):
    run.mark(status, "stage a, step 5")
    write_orders(run, [tables(4), dev(4)])
    refresher = Given(run)
    reason = watch(run, refresher)
    assert reason.startswith("training has not been heard of for 5 seconds (process ") and f", {status} at stage a, step 5, last" in reason
    assert refresher.made == [tables(4), dev(4)]


def test_without_a_training_it_leaves_after_a_while(run, clock):
    run.state.unlink()
    start = clock.now
    assert watch(run, Given(run), 30) == "training has not been heard of for 30 seconds (no process)"
    assert 30 < clock.now - start < 31


def test_as_long_as_training_lives_it_stays(run, clock):
    start = clock.now
    clock.after(40, lambda: run.mark("stopped", "stage a, step 5"))
    assert "training has not been heard of for 20 seconds" in watch(run, Given(run), 20)
    assert 59 < clock.now - start < 61


def test_a_training_that_is_resumed_in_time_is_served(run, clock):
    run.mark("stopped", "stage a, step 5")

    def resume():
        run.mark("running", "stage a, step 5")
        write_orders(run, [dev(4)])

    clock.after(15, resume)
    refresher = Given(run, lambda order: run.mark("finished", "the end"))
    assert watch(run, refresher, 20) == "the run has finished" and refresher.made == [dev(4)]


def gone(order: Order):
    raise CheckpointGone(f"a-{order.step:08d} has gone")


def test_an_order_that_was_withdrawn_may_have_lost_its_checkpoint(run, caplog):
    def withdrawn(order):
        if order == tables(4):
            write_orders(run, [])
            run.mark("finished", "the end")
            gone(order)

    write_orders(run, [tables(4)])
    refresher = Given(run, withdrawn)
    with caplog.at_level("INFO"):
        assert watch(run, refresher, 60) == "the run has finished"
    assert refresher.made == [] and caplog.messages == ["tables of a, step 4: no longer wanted"]


def test_an_order_that_stands_must_not_have_lost_it(run):
    write_orders(run, [tables(4)])
    with pytest.raises(CheckpointGone, match="a-00000004 has gone"):
        watch(run, Given(run, gone))


def test_another_file_that_is_missing_ends_the_refresher_though_the_order_was_withdrawn(run):
    def broken(order):
        write_orders(run, [])
        raise FileNotFoundError("no file ranked.trec")

    write_orders(run, [tables(4)])
    with pytest.raises(FileNotFoundError, match="ranked.trec"):
        watch(run, Given(run, broken))


def works(world: World, folder) -> tuple[str, list[Order]]:
    """Each process publishes under a folder of its own; the first one's is the run."""
    run = RunDir(folder)
    refresher = Given(RunDir(folder / f"{world.rank}") if world.rank else run)
    return watch(run, refresher, 0.05, world), refresher.made


def test_processes_make_the_same_and_leave_together(run_processes, run):
    run.mark("stopped", "stage a, step 5")
    write_orders(run, [tables(4), dev(4), dev(8, False)])
    first, second = run_processes(2, works, run.folder)
    assert first == second and first[1] == [tables(4), dev(4), dev(8, False)] and "has not been heard of" in first[0]
