from contextlib import ExitStack

import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.runs.generation import RefreshRequest, publish_evaluation, read_requests
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import AsyncExecutor

pytestmark = pytest.mark.usefixtures("clock")
COMMAND = "pyserini-ance refresh RECIPE --output RUN"
TABLES, DEV = RefreshRequest("tables", "a", 4, "w"), RefreshRequest("dev", "a", 4, "w")
LATER_DEV = RefreshRequest("dev", "a", 8, "w")


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path)


@pytest.fixture
def working(run):
    """Let a refresher hold its role from now on; it ends with the returned stack."""
    with ExitStack() as stack:
        yield lambda where: stack.enter_context(run.refresher.held(where)) or stack


def background(run: RunDir, timeout_seconds: float = 30, world: World | None = None, **more) -> AsyncExecutor:
    return AsyncExecutor(run, timeout_seconds, COMMAND, world or World(), **more)


def measure(run: RunDir, request: RefreshRequest = DEV) -> None:
    publish_evaluation(run.evaluation(request.stage, request.step), {"dev": 0.5}, request.weights, {})


def fail(run: RunDir, reason: str, kind: type[ValueError] = ValueError) -> None:
    with pytest.raises(kind), run.refresher.held("tables of a-00000004"):
        raise kind(reason)


def test_what_is_open_is_there_for_a_refresher_to_read(run):
    executor = background(run)
    later, earlier = RefreshRequest("tables", "a", 8, "x"), RefreshRequest("dev", "a", 2, "v", False)
    for request in (TABLES, later, DEV, earlier):
        executor.submit(request)
    assert read_requests(run) == [earlier, TABLES, DEV, later]
    executor.cancel([TABLES, earlier])
    assert read_requests(run) == [DEV, later]
    background(run).reset()  # of a trainer that died
    assert read_requests(run) == []
    second = background(run, world=World(1, 2))  # the main process writes
    second.submit(DEV)
    assert second.pending == [DEV] and read_requests(run) == []


def test_what_is_made_is_not_waited_for(run):
    executor = background(run, timeout_seconds=0)
    assert not executor.done(DEV)
    measure(run)
    assert executor.done(DEV) and not executor.done(TABLES)
    assert executor.wait([DEV]) == executor.wait([TABLES, DEV]) == DEV


def test_a_refresher_that_works_or_comes_late_is_waited_for(run, clock, working):
    clock.after(50, lambda: measure(run))
    with run.refresher.held("tables of a-00000004"):
        background(run, timeout_seconds=10).wait([DEV])
    clock.after(25, lambda: working("preparing"))
    clock.after(60, lambda: measure(run, LATER_DEV))
    background(run, timeout_seconds=30).wait([LATER_DEV])


def test_patience_begins_when_a_refresher_has_ended(run, clock, working):
    start, refresher = clock.now, working("tables of a-00000004")
    clock.after(30, refresher.close)
    with pytest.raises(RuntimeError) as error:
        background(run, timeout_seconds=20).wait([DEV])
    assert 49 < clock.now - start < 51
    assert ", finished at tables of a-00000004). Start one with" in str(error.value)


def test_what_ends_the_waiting_says_what_is_needed_and_what_to_type(run, clock):
    with pytest.raises(RuntimeError, match=f"negatives of stage a, step 4 or dev .* for 5 s.*{COMMAND}"):
        background(run, timeout_seconds=5).wait([TABLES, DEV])
    # A failure because of a setting leaves no run to resume.
    for kind, raised, is_resumable in ((ValueError, RuntimeError, True), (SettingError, SettingError, False)):
        clock.after(10, lambda kind=kind: fail(run, "disk full", kind))
        with pytest.raises(raised, match="dev score of stage a, step 4, .*disk full") as error:
            background(run, previous_refresher=run.refresher.read()).wait([DEV])
        assert (COMMAND in str(error.value)) == is_resumable


def test_a_failure_before_this_training_began_is_no_news(run, clock):
    fail(run, "disk full")
    executor = background(run, previous_refresher=run.refresher.read())
    clock.after(10, lambda: measure(run))
    executor.wait([DEV])
    fail(run, "disk full again")
    with pytest.raises(RuntimeError, match="the refresher has failed: disk full again"):
        executor.wait([TABLES])


def test_a_process_that_sees_new_files_late_waits_until_it_can_read_what_the_first_found(run, clock):
    class Second(World):
        def on_main(self, work):
            return 1

        def barrier(self):
            seen.append(DEV.is_done(run))

    seen = []
    clock.after(10, lambda: measure(run))
    assert background(run, world=Second(1, 2)).wait([TABLES, DEV]) == DEV
    assert seen == [True]


def waits(world: World, folder) -> RefreshRequest:
    return background(RunDir(folder), timeout_seconds=0.1, world=world).wait([TABLES, DEV])


def asks(world: World, folder) -> list[bool]:
    executor = background(RunDir(folder), world=world)
    return [executor.done(request) for request in (DEV, TABLES)]


def test_processes_agree_on_what_is_made_and_end_together(run_processes, run):
    measure(run, RefreshRequest("dev", "a", 4, "w"))
    assert run_processes(2, asks, run.folder) == [[True, False]] * 2
    assert run_processes(2, waits, run.folder) == [DEV] * 2
    run.evaluation("a", 4).unlink()
    first, second = run_processes.ends(2, waits, run.folder)
    message = "RuntimeError: training needs the generation of negatives of stage a"
    assert message in first["error"]
    assert f"PeerError: process 0 of 2 failed: {message}" in second["error"]
