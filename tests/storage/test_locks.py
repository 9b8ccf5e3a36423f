"""Locks that end with their holder, whatever its children do and whatever others take for its name."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from helpers.waiting import until

from pyserini_ance.storage import locks
from pyserini_ance.storage.locks import LockHeld, check_file_system, holder, is_held, locked

HOLDER = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path
from pyserini_ance.storage.locks import locked

def sleep(): time.sleep(600)

with locked(Path(sys.argv[1])):
    how, child = sys.argv[2], 0
    if how == "fork":
        child = os.fork()
        if not child: sleep()
    elif how == "worker":
        worker = multiprocessing.get_context("fork").Process(target=sleep); worker.start(); child = worker.pid
    elif how == "program":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    elif how == "inheriting program":  # with every descriptor that may be inherited
        child = subprocess.Popen(["sleep", "600"], close_fds=False).pid
    print(child, flush=True)
    sleep()
"""
NAMESPACES = {"pid": ("unshare", "--pid", "--fork", "--kill-child"), "uts": ("unshare", "--uts")}


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".state.json.held"


@pytest.fixture
def hold(path):
    """Start another process that holds `path`, after `prefix`; returns it and the pid of its child."""
    started = []

    def start(how: str = "alone", prefix: tuple[str, ...] = ()) -> tuple[subprocess.Popen, int]:
        command = [*prefix, sys.executable, "-c", HOLDER, str(path), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        child = int(process.stdout.readline() or 0)
        started.append((process, child))
        return process, child

    yield start
    for process, child in started:
        process.kill()
        process.wait()
        if child:
            os.kill(child, signal.SIGKILL)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_SECONDS", 0.05)


def is_refused(path, **how) -> bool:
    try:
        with locked(path, patience_seconds=0, **how):
            return False
    except LockHeld:
        return True


def test_one_holder_excludes_all_and_readers_exclude_writers(path):
    assert not is_held(path)
    with locked(path):
        assert is_held(path) and is_refused(path) and is_refused(path, shared=True)
    with locked(path, shared=True), locked(path, shared=True):
        assert not is_held(path) and is_refused(path)
    assert not is_refused(path) and os.listdir(path.parent) == []


def test_readers_leave_in_any_order_and_the_last_removes_the_file(path):
    first, second = locked(path, shared=True), locked(path, shared=True)
    first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    assert path.exists() and is_refused(path)
    second.__exit__(None, None, None)
    assert not path.exists()


def test_a_lock_whose_file_was_removed_hurts_no_later_holder(path):
    with locked(path):
        path.unlink()
        with locked(path):
            pass
        path.touch()
    assert path.exists()  # it is another one's


def test_threads_take_turns(path):
    inside, most, lock = [], [], threading.Lock()

    def work():
        for _ in range(20):
            with locked(path):
                with lock:
                    inside.append(1)
                    most.append(len(inside))
                with lock:
                    inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert max(most) == 1 and len(most) == 80 and os.listdir(path.parent) == []


def test_who_waits_says_so_once_and_names_the_holder(path, hold, caplog):
    process, _ = hold()
    refused = pytest.raises(LockHeld, match=f"tokens is in use by process {process.pid} on host .* since 20")
    with refused, locked(path, patience_seconds=0.1, what="tokens"):
        pass
    threading.Timer(0.5, process.kill).start()
    with caplog.at_level("INFO"), locked(path, what="tokens"):
        assert process.wait() == -signal.SIGKILL
    [message] = caplog.messages
    assert message.startswith(f"waiting for tokens, which process {process.pid} on host ")
    assert message.endswith(" is writing")


@pytest.mark.parametrize("how", ["fork", "worker", "program", "inheriting program"])
def test_a_killed_holder_frees_its_lock_though_its_child_lives_on(path, hold, how):
    process, child = hold(how)
    assert is_held(path) and is_refused(path)
    process.kill()
    process.wait()
    until(lambda: not is_held(path))  # a child that was forked just now closes the file first
    assert os.kill(child, 0) is None
    with locked(path):
        assert is_held(path)


def test_a_forked_child_that_leaves_the_block_leaves_the_lock_to_its_parent(path):
    parent = os.getpid()
    try:
        with locked(path):
            if child := os.fork():
                os.waitpid(child, 0)
                assert path.exists() and is_held(path) and is_refused(path)
            else:
                lock = locked(path.with_name("own"))  # perhaps under the number that its parent's lock has
                lock.__enter__()
        assert os.getpid() == parent or path.with_name("own").exists()
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert not path.exists()


@pytest.mark.parametrize("kind", NAMESPACES)
def test_nothing_depends_on_process_ids_or_host_names(path, hold, kind):
    """Containers that share a folder have the same few process ids, and perhaps one host name."""
    prefix = NAMESPACES[kind]
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("may not make namespaces")
    if kind == "uts":
        prefix = (*prefix, "sh", "-c", 'hostname elsewhere; exec "$0" "$@"')
    process, _ = hold(prefix=prefix)
    assert is_held(path) and is_refused(path)
    assert kind == "pid" or "on host elsewhere" in holder(path)
    process.kill()
    process.wait()
    until(lambda: not is_held(path))
    assert not is_refused(path)


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    check_file_system(tmp_path / "not" / "yet")
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(OSError, match="no locks.*two processes can hold the same one"):
        check_file_system(tmp_path / "not" / "yet")
