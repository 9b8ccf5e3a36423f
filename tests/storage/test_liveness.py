"""HeartbeatMonitor: a holder is alive while its heartbeat rises, whatever clocks say."""

import re

import pytest

from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.liveness import LOST_SECONDS, HeartbeatMonitor, clock, this_process
from pyserini_ance.storage.role_lock import RoleLock

pytestmark = pytest.mark.usefixtures("clock")
OTHER_HOST = {
    "layout": 1,
    "status": "running",
    "where": "`encode`",
    "pid": 123,
    "host": "elsewhere",
    "started": 5,
    "term": 1,
    "beat": 1,
    "time": 0.0,
}


@pytest.fixture
def lock(tmp_path) -> RoleLock:
    return RoleLock(tmp_path / "refresher.json")


def test_without_a_record_nothing_is_alive(lock):
    monitor = HeartbeatMonitor(lock)
    assert monitor.alive() is False and monitor.describe() == "no process"
    with lock.held("work"):
        assert monitor.alive() is True and monitor.heartbeat_seen
    assert monitor.alive() is False
    assert re.match(r"process \d+ on host \S+, finished at work, last heartbeat", monitor.describe())


def test_a_process_of_this_host_is_looked_up_and_is_lost_after_long_silence(lock, fork, clock):
    child = fork(lambda connection: (connection.send(this_process()), connection.recv()))
    write_json(lock.path, {**OTHER_HOST, **child.receive()})
    monitor = HeartbeatMonitor(lock)
    for seconds, alive in ((0, True), (59, True), (2, False)):
        clock.sleep(seconds)
        assert monitor.alive() is alive and not monitor.is_uncertain
    write_json(lock.path, {**OTHER_HOST, **lock.read(), "beat": 10**6})
    assert monitor.alive()
    child.end()
    assert not monitor.alive()


@pytest.mark.parametrize(
    "times",
    [
        [1e9] * 9,
        [1e9 - 3600.0 * n for n in range(9)],
        [1e300, -1e300, float("inf"), float("nan"), "noon", None, {}],
    ],
    ids=["a stopped clock", "a clock that runs backwards", "nonsense"],
)
def test_a_beating_process_is_alive_whatever_its_clock_says(lock, clock, times):
    """The holder is on another host, and its clock shows anything."""
    monitor = HeartbeatMonitor(lock)
    for number, now in enumerate(times):
        write_json(lock.path, {**OTHER_HOST, "beat": number, "time": now})
        assert monitor.alive() is True
        clock.sleep(LOST_SECONDS - 1)
        assert monitor.alive() is True
        assert "process 123 on host elsewhere, at work on `encode`, last heartbeat " in monitor.describe()
    assert monitor.heartbeat_seen and not monitor.is_uncertain


def test_a_silent_process_is_lost_whatever_its_clock_says(lock, clock):
    monitor = HeartbeatMonitor(lock)
    for second in range(LOST_SECONDS + 1):
        write_json(lock.path, {**OTHER_HOST, "time": 1e9 + 1e6 * second})
        assert monitor.alive() is (second < LOST_SECONDS)
        clock.sleep(1)
    assert not monitor.heartbeat_seen


def test_a_silent_host_is_lost_and_one_that_comes_back_is_alive(lock, clock):
    write_json(lock.path, OTHER_HOST)
    monitor = HeartbeatMonitor(lock)
    assert monitor.alive() is True and monitor.is_uncertain
    clock.sleep(LOST_SECONDS + 1)
    assert monitor.alive() is False
    write_json(lock.path, {**OTHER_HOST, "beat": 2})
    assert monitor.alive() is True and not monitor.is_uncertain
    clock.sleep(LOST_SECONDS + 1)
    assert monitor.alive() is False
    assert re.search(r"last heartbeat 19\d\d-\d\d-\d\d \d\d:\d\d:00, unchanged for 61 s", monitor.describe())


def test_time_without_an_answer_of_the_file_server_does_not_count(lock, clock, monkeypatch):
    write_json(lock.path, OTHER_HOST)
    monitor, read = HeartbeatMonitor(lock), lock.read
    assert monitor.alive() is True
    with monkeypatch.context() as hanging:
        hanging.setattr(lock, "read", lambda: clock.sleep(100) or read())
        assert monitor.alive() is True
    assert monitor.alive() is True


def test_a_file_of_another_version_is_an_error(lock):
    write_json(lock.path, {**OTHER_HOST, "layout": 9})
    with pytest.raises(
        RuntimeError, match=r"written by another version \(layout 9 in .*\), and this version \(layout 1\)"
    ):
        HeartbeatMonitor(lock).alive()


def test_clock():
    assert re.fullmatch(r"2026-11-\d\d \d\d:\d\d:22", clock(1795183402.9))
    assert clock(1e300) == "at an impossible time (1e+300)"
