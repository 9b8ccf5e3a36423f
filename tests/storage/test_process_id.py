"""A process is recognised by its number, host and start, also when the number is reused."""

import json
import os
import signal
import subprocess
import sys

from helpers.waiting import until

from pyserini_ance.storage import liveness
from pyserini_ance.storage.liveness import (
    is_alive,
    process_is_alive,
    process_of,
    process_table,
    remove_leftovers,
    temp_path,
    this_process,
)


def test_a_process_is_alive_until_it_ends():
    source = "import json, sys; from pyserini_ance.storage.liveness import this_process; "
    source += "print(json.dumps(this_process()), flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process = json.loads(child.stdout.readline())
    assert process["pid"] == child.pid and is_alive(process) is True
    child.communicate()
    assert is_alive(process) is False


def test_a_reused_number_is_another_process():
    assert is_alive({**this_process(), "pid": 1}) is False


def test_containers_that_share_a_host_name_are_told_apart(tmp_path, monkeypatch):
    """Each has its own process table: what looks dead here may live there."""
    there = {**this_process(), "process_table": "another", "pid": 1 << 30}
    assert process_of(there) != process_of({**there, "process_table": process_table()})
    with monkeypatch.context() as patch:
        patch.setattr(liveness, "process_table", lambda: "another")
        patch.setattr(os, "getpid", lambda: 1 << 30)
        left = temp_path(tmp_path / "a", "tmp")
    left.touch()
    remove_leftovers(tmp_path)
    assert left.exists()
    remove_leftovers(tmp_path, there)
    assert not left.exists()


def test_liveness_is_unknown_for_other_hosts_and_without_a_start():
    assert is_alive({**this_process(), "host": "elsewhere"}) is None
    assert is_alive({**this_process(), "process_table": "another"}) is None
    assert is_alive({"pid": os.getpid(), "host": this_process()["host"]}) is None


def test_a_zombie_is_not_alive(fork):
    def waits(connection):
        connection.send(this_process())
        connection.recv()

    child = fork(waits)
    process = child.receive()
    os.kill(child.pid, signal.SIGSTOP)
    assert is_alive(process) is True and process_is_alive(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: not is_alive(process))
    assert os.path.exists(f"/proc/{child.pid}") and not process_is_alive(child.pid)


def test_process_of_ignores_other_fields():
    assert process_of({**this_process(), "why": "encode"}) == this_process()
    assert process_of({"pid": os.getpid()}) != this_process()
