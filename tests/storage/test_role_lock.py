"""RoleLock: one process holds a role, shows that it lives, and notices when it was replaced."""

import errno
import json
import os
import signal
import socket
import threading
import time

import pytest
from helpers.waiting import until

from pyserini_ance.storage import role_lock
from pyserini_ance.storage.liveness import LOST_SECONDS, this_process
from pyserini_ance.storage.lock_file import LockHeld
from pyserini_ance.storage.role_lock import RoleLock

pytestmark = pytest.mark.usefixtures("fast_locks")


@pytest.fixture
def lock(tmp_path) -> RoleLock:
    return RoleLock(tmp_path / "refresher.json")


def names(lock: RoleLock) -> list[str]:
    return sorted(path.name for path in lock.path.parent.iterdir())


def hold(connection, path) -> None:
    """Hold the lock; on each message record it as the place of work, and answer with the result."""
    lock = RoleLock(path)
    with lock.held("encode"):
        connection.send("holding")
        while True:
            where = connection.recv()
            try:
                lock.mark("running", where)
                connection.send("marked")
            except RuntimeError as error:
                connection.send(f"lost {lock.lost}: {error}")


def test_the_file_names_the_holder_and_its_work(lock):
    assert lock.read() is None
    with lock.held("waiting", device="cpu"):
        record = lock.read()
        assert (
            record["status"] == "running"
            and record["where"] == "waiting"
            and record["device"] == "cpu"
            and record["layout"] == 1
        )
        assert record.items() >= this_process().items() and abs(record["since"] - time.time()) < 5
        lock.mark("running", "encode", documents=7)
        assert (lock.read()["where"], lock.read()["documents"], lock.read()["device"]) == ("encode", 7, "cpu")
        assert lock.read()["beat"] > record["beat"]
    assert lock.read()["status"] == "finished" and lock.read()["where"] == "encode"
    assert names(lock) == ["refresher.json"]


def test_the_heartbeat_rises_while_the_lock_is_held_and_not_longer(lock):
    with lock.held("waiting"):
        first = lock.read()
        until(lambda: lock.read()["beat"] > first["beat"] + 3)
        assert {**lock.read(), "beat": 0, "time": 0} == {**first, "beat": 0, "time": 0}
    last = lock.read()
    time.sleep(0.1)
    assert lock.read() == last
    assert not [thread for thread in threading.enumerate() if "heartbeat" in thread.name]


def test_writes_of_many_threads_leave_a_whole_file_and_a_rising_beat(lock, monkeypatch):
    monkeypatch.setattr(role_lock, "BEAT_SECONDS", 0.0005)
    with lock.held("start"):
        threads = [
            threading.Thread(target=lambda n=n: [lock.mark("running", f"{n} {i}") for i in range(40)])
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        seen = [lock.read()]
        while any(thread.is_alive() for thread in threads):
            seen.append(lock.read())
    beats = [record["beat"] for record in [*seen, lock.read()]]
    assert beats == sorted(beats) and beats[-1] >= 120 and not lock.lost


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [(ValueError("broken"), "failed", "broken"), (KeyboardInterrupt(), "stopped", "KeyboardInterrupt")],
)
def test_an_unrecorded_end_is_recorded(lock, error, status, reason):
    with pytest.raises(type(error)), lock.held("encode"):
        raise error
    assert (lock.read()["status"], lock.read()["reason"], lock.read()["where"]) == (status, reason, "encode")


def test_a_recorded_end_stays(lock):
    with pytest.raises(ValueError), lock.held("encode"):
        lock.mark("stopped", "step 7", reason="asked to")
        raise ValueError("later")
    assert (lock.read()["status"], lock.read()["reason"]) == ("stopped", "asked to")


def test_an_acquired_lock_is_held_and_a_released_one_is_acquired_again(lock):
    assert lock.acquire("preparing") is None
    with lock.held("working", device="cpu"):
        assert lock.read()["term"] == 1 and lock.read()["device"] == "cpu"
    with lock.held("again"):
        assert lock.read()["term"] == 2 and lock.read()["status"] == "running"
    lock.mark("stopped", "later")
    assert lock.read()["term"] == 2


def test_a_lock_that_this_process_holds_is_refused_to_its_other_callers(lock, tmp_path):
    """As a thread or a callback is, which has an object of its own for the same file."""
    (tmp_path / "link").symlink_to(".")
    others = [RoleLock(lock.path), RoleLock(tmp_path / "link" / lock.path.name)]
    with lock.held("encode"):
        lock.mark("stopped", "pause")
        lock.mark("running", "encode")
        for other in others:
            for attempt in (other.check_free, lambda other=other: other.acquire("mine")):
                with pytest.raises(LockHeld, match=f"in use by this process, process {os.getpid()} on"):
                    attempt()
            with pytest.raises(LockHeld), other.held("mine"):
                pytest.fail("two hold the lock")
        lock.mark("running", "step 7")
    for other in others:
        with other.held("mine"):
            assert lock.read()["where"] == "mine"


def test_a_lock_that_this_process_acquired_and_left_is_acquired_again(lock, monkeypatch):
    lock.acquire("preparing")
    with RoleLock(lock.path).held("again"):
        assert lock.read()["term"] == 2
    with monkeypatch.context() as full, pytest.raises(ZeroDivisionError), lock.held("unrecorded"):
        full.setattr(role_lock, "write_json", _full)
        raise ZeroDivisionError
    assert lock.read()["status"] == "running"
    RoleLock(lock.path).acquire("next")


def test_mark_acquires_a_free_lock(lock, fork):
    lock.mark("running", "step 1")
    assert lock.read()["term"] == 1 and names(lock) == [".refresher.json.claim-1", "refresher.json"]
    lock.mark("stopped", "step 2")
    assert names(lock) == ["refresher.json"]
    assert fork(hold, lock.path).receive() == "holding"
    with pytest.raises(LockHeld):
        RoleLock(lock.path).mark("running", "step 2")


def test_a_living_holder_is_named(lock, fork, clock):
    child = fork(hold, lock.path)
    child.receive()
    expected = (
        rf"in use by process {child.pid} on host {socket.gethostname()} since \d+-\d+-\d+ \d+:\d+:\d+, "
        r"at work on encode .*refresher.json"
    )
    with pytest.raises(LockHeld, match=expected), lock.held("mine"):
        pass
    os.kill(child.pid, signal.SIGSTOP)  # a stopped process is alive
    clock.sleep(LOST_SECONDS + 1)
    with pytest.raises(LockHeld):
        lock.acquire("mine")
    os.kill(child.pid, signal.SIGCONT)
    assert child.ask("step 7") == "marked" and lock.read()["where"] == "step 7"


def test_a_killed_holder_is_replaced_immediately(lock, fork):
    child = fork(hold, lock.path)
    child.receive()
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: _state_of(child.pid) == "Z")  # its parent has not read its exit code
    start = time.monotonic()
    with lock.held("mine"):
        assert time.monotonic() - start < LOST_SECONDS / 2
        assert lock.read()["pid"] == os.getpid() and lock.read()["term"] == 2


def _state_of(pid: int) -> str:
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]


def test_a_beating_holder_of_another_host_keeps_the_lock(lock, fork):
    child = fork(hold, lock.path, host="elsewhere")
    child.receive()
    start = time.monotonic()
    with pytest.raises(LockHeld, match=f"process {child.pid} on host elsewhere"):
        lock.acquire("mine")
    assert time.monotonic() - start < LOST_SECONDS / 2
    assert child.ask("step 7") == "marked"


@pytest.mark.usefixtures("short_timeout")
def test_a_holder_that_was_suspended_and_replaced_notices_and_writes_no_more(lock, fork):
    child = fork(hold, lock.path, host="elsewhere")
    child.receive()
    for attempt in range(3):
        os.kill(child.pid, signal.SIGSTOP)
        with lock.held(f"attempt {attempt}"):
            own = lock.read()
            assert (own["pid"], own["term"]) == (os.getpid(), attempt + 2)
            os.kill(child.pid, signal.SIGCONT)
            assert child.ask("other").startswith(
                f"lost True: {lock.path}: process {os.getpid()} on host {socket.gethostname()} has taken over"
            )
            time.sleep(0.1)
            lock.mark("running", "going on")
            assert lock.read()["term"] == own["term"] and lock.read()["pid"] == os.getpid()


def test_a_last_write_of_a_replaced_holder_is_overwritten(lock):
    """It was suspended between reading the file and writing it, so it writes once more."""
    RoleLock(lock.path).acquire("other")
    other = {**lock.read(), "host": "elsewhere", "status": "stopped"}
    with lock.held("mine"):
        lock.path.write_text(json.dumps(other))
        until(lambda: lock.read()["where"] == "mine")
        lock.path.write_text("{")  # damaged
        until(lambda: lock.path.read_text() != "{")
    assert lock.read()["where"] == "mine" and not lock.lost


def test_a_replaced_holder_does_not_record_its_end(lock):
    with lock.held("mine"):
        other = {**lock.read(), "host": "elsewhere", "term": 2, "beat": 99}
        lock.path.write_text(json.dumps(other))
        until(lambda: lock.lost)
    assert lock.read() == other
    with pytest.raises(RuntimeError, match=r"process .* on host elsewhere has taken over"):
        lock.mark("finished", "the end")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_of_the_holder_is_not_the_holder(lock, fork):
    def mark(connection):
        try:
            lock.mark("running", "fork")
        except LockHeld as error:
            connection.send(str(error))

    with lock.held("mine"):
        assert f"in use by process {os.getpid()} " in fork(mark).receive()
    with pytest.raises(ZeroDivisionError), lock.held("mine"):
        if (child := os.fork()) == 0:
            try:
                lock._record_end("failed")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert lock.read()["status"] == "running"
        raise ZeroDivisionError


def test_a_renamed_host_keeps_its_lock(lock, monkeypatch):
    with lock.held("mine"):
        monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
        lock.mark("running", "on")
    assert lock.read()["status"] == "finished"


def _full(path, value):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_full_disk_costs_heartbeats_and_not_the_lock(lock, monkeypatch, caplog):
    with lock.held("mine"):
        with monkeypatch.context() as full:
            full.setattr(role_lock, "write_json", _full)
            until(lambda: "no heartbeat for now: [Errno 28] No space left on device" in caplog.text)
            with pytest.raises(OSError, match=r"No space left on device: .*refresher.json"):
                lock.mark("running", "on")
            time.sleep(0.1)
            assert caplog.text.count("no heartbeat") == 1
        lock.mark("running", "on again")
    assert lock.read()["where"] == "on again" and lock.read()["status"] == "finished"


def test_a_lock_that_could_not_be_written_is_not_held(lock, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(role_lock, "write_json", _full)
        with pytest.raises(OSError, match=r"No space left on device: .*refresher.json"):
            lock.acquire("mine")
    assert names(lock) == []
    RoleLock(lock.path).acquire("other")
    lock.mark("running", "mine")
    assert lock.read()["term"] == 2


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '"text"', "\xff"])
def test_a_damaged_file_is_an_error_with_its_name(lock, content):
    lock.path.write_text(content, encoding="latin-1")
    for attempt in (lock.read, lambda: lock.acquire("mine")):
        with pytest.raises(
            RuntimeError,
            match=r"refresher.json was damaged: found .* expected one JSON object; restore or remove it",
        ):
            attempt()


def test_a_file_of_another_kind_is_an_error_with_its_name(lock):
    lock.path.write_text('{"layout": 1, "pid": 3}')
    with pytest.raises(RuntimeError, match=r"refresher.json lacks \['host', 'status', 'where'\]"):
        lock.read()


def test_a_file_of_another_version_is_not_read_but_may_be_replaced(lock):
    lock.acquire("mine")
    newer = RoleLock(lock.path, layout=2)
    for attempt in (newer.read, newer.held("mine").__enter__):
        with pytest.raises(
            RuntimeError,
            match=(
                r"was written by an earlier version \(layout 1 in refresher.json\), "
                r"and this version \(layout 2\) does not"
            ),
        ):
            attempt()
    newer.acquire("mine")
    assert newer.read()["layout"] == 2 and newer.read()["term"] == 2
