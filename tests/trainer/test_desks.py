"""Where products are ordered: what a refresher reads, and how long, and with what words, training waits for it."""

import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.models import RefresherProcess
from pyserini_ance.runs.evaluation import publish_evaluation
from pyserini_ance.runs.orders import Order, read_orders
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.desks import Background, Inline

pytestmark = pytest.mark.usefixtures("clock")
COMMAND = "python -m pyserini_ance.refresh RECIPE --output RUN"
TABLES, DEV = Order("tables", "a", 4, "w"), Order("dev", "a", 4, "w")


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path)


def background(run: RunDir, wait_seconds: float = 30, world: World | None = None, **more) -> Background:
    settings = RefresherProcess().model_copy(update={"wait_seconds": wait_seconds})
    return Background(run, settings, COMMAND, world or World(), **more)


def measure(run: RunDir, order: Order = DEV) -> None:
    publish_evaluation(run.evaluation(order.stage, order.step), {"dev": 0.5}, order.weights, {})


def fail(run: RunDir, reason: str) -> None:
    with pytest.raises(ValueError), run.refresher.hold("tables of a-00000004"):
        raise ValueError(reason)


def test_inline_makes_what_is_ordered_at_once():
    made = []
    desk = Inline(made.append)
    desk.place(DEV)
    assert made == [DEV] and desk.is_made(DEV)
    assert desk.wait([TABLES, DEV]) == DEV
    desk.drop([DEV])
    assert made == [DEV]


def test_what_is_open_is_there_for_a_refresher_to_read(run):
    desk = background(run)
    later, earlier = Order("tables", "a", 8, "x"), Order("dev", "a", 2, "v", awaited=False)
    for order in (TABLES, later, DEV, earlier):
        desk.place(order)
    assert read_orders(run) == [earlier, TABLES, DEV, later]
    desk.drop([TABLES, earlier])
    assert read_orders(run) == [DEV, later]
    desk.drop([DEV, later])
    assert read_orders(run) == []


def test_a_stage_begins_without_the_orders_of_a_trainer_that_died(run):
    background(run).place(TABLES)
    desk = background(run)
    desk.reset()
    assert read_orders(run) == []
    desk.place(DEV)
    assert read_orders(run) == [DEV]


def test_of_several_processes_the_first_writes_the_orders(run):
    desk = background(run, world=World(1, 2))
    desk.place(DEV)
    assert desk.open == [DEV] and not run.orders.exists()


def test_what_is_made_is_not_waited_for(run):
    desk = background(run, wait_seconds=0)
    assert not desk.is_made(DEV)
    measure(run)
    assert desk.is_made(DEV) and not desk.is_made(TABLES)
    assert desk.wait([DEV]) == desk.wait([TABLES, DEV]) == DEV


def test_a_refresher_that_lives_is_waited_for_however_long_it_takes(run, clock):
    clock.after(50, lambda: measure(run))
    with run.refresher.hold("tables of a-00000004"):
        background(run, wait_seconds=10).wait([DEV])


def test_a_refresher_that_comes_late_is_waited_for(run, clock):
    clock.after(25, lambda: run.refresher.take("preparing"))
    clock.after(60, lambda: measure(run))
    background(run, wait_seconds=30).wait([DEV])


def test_training_without_a_refresher_says_what_it_needs_and_how_to_start_one(run):
    with pytest.raises(RuntimeError) as error:
        background(run, wait_seconds=5).wait([TABLES, DEV])
    assert str(error.value) == (
        "training needs the negatives of stage a, step 4 or dev measure of stage a, step 4, and no refresher has been heard of "
        f"for 5 seconds (no process). Start one with: {COMMAND}\nand go on with --resume"
    )


def test_patience_begins_when_a_refresher_was_last_heard_of(run, clock):
    start = clock.now
    run.refresher.take("tables of a-00000004")
    clock.after(30, lambda: run.refresher.mark("stopped", "tables of a-00000004"))
    with pytest.raises(RuntimeError) as error:
        background(run, wait_seconds=20).wait([DEV])
    assert 49 < clock.now - start < 51
    assert "stopped at tables of a-00000004, last heartbeat 20" in str(error.value)


def test_a_refresher_that_fails_ends_the_waiting_with_its_reason(run, clock):
    clock.after(10, lambda: fail(run, "disk full"))
    with pytest.raises(RuntimeError) as error:
        background(run).wait([DEV])
    assert str(error.value) == (
        "training needs the dev measure of stage a, step 4, but the refresher has failed: disk full\n"
        f"Start it again with: {COMMAND}\nand go on with --resume"
    )


def test_a_failure_before_this_training_began_is_no_news(run, clock):
    """A refresher that is started again needs a while before it says so."""
    fail(run, "disk full")
    desk = background(run, former=run.refresher.read())
    clock.after(10, lambda: measure(run))
    desk.wait([DEV])
    fail(run, "disk full again")
    with pytest.raises(RuntimeError, match="the refresher has failed: disk full again"):
        desk.wait([TABLES])


def test_what_is_waited_for_is_said_now_and_then(run, clock, caplog):
    clock.after(20, lambda: run.refresher.take("tables of a-00000004"))
    clock.after(75, lambda: measure(run))
    with caplog.at_level("INFO"):
        background(run).wait([DEV])
    alone, together = caplog.messages
    assert alone == f"waiting for the dev measure of stage a, step 4: no refresher is at work (no process); start one with: {COMMAND}"
    assert together.startswith("waiting for the dev measure of stage a, step 4: process ") and ", at work on tables of a-00000004, last" in together


def test_a_process_that_sees_new_files_late_waits_until_it_can_read_what_the_first_found(run, clock):
    class Second(World):
        def once(self, work):
            return 1

        def meet(self):
            seen.append(DEV.is_made(run))

    seen = []
    clock.after(10, lambda: measure(run))
    assert background(run, world=Second(1, 2)).wait([TABLES, DEV]) == DEV
    assert seen == [True]


def waits(world: World, folder) -> Order:
    return background(RunDir(folder), wait_seconds=0.1, world=world).wait([TABLES, DEV])


def asks(world: World, folder) -> list[bool]:
    desk = background(RunDir(folder), world=world)
    return [desk.is_made(order) for order in (DEV, TABLES)]


def test_processes_agree_on_what_is_made_and_end_together(run_processes, run):
    measure(run, Order("dev", "a", 4, "w"))
    assert run_processes(2, asks, run.folder) == [[True, False]] * 2
    assert run_processes(2, waits, run.folder) == [DEV] * 2
    run.evaluation("a", 4).unlink()
    first, second = run_processes.ends(2, waits, run.folder)
    assert "RuntimeError: training needs the negatives of stage a" in first["error"]
    assert "PeerError: process 0 of 2 failed: RuntimeError: training needs the negatives of stage a" in second["error"]
