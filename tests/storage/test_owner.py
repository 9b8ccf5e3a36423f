import json
import os
import signal
import subprocess
import sys

from waiting import until

from pyserini_ance.storage.owner import lives, process_lives, process_of, this_process


def test_a_process_lives_until_it_ends():
    source = "import json, sys; from pyserini_ance.storage.owner import this_process; print(json.dumps(this_process()), flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    owner = json.loads(child.stdout.readline())
    assert owner["pid"] == child.pid and lives(owner) is True
    child.communicate()
    assert lives(owner) is False


def test_a_number_that_was_given_again_is_another_process():
    assert lives({**this_process(), "pid": 1}) is False


def test_what_cannot_be_known():
    assert lives({**this_process(), "host": "elsewhere"}) is None
    assert lives({"pid": os.getpid(), "host": this_process()["host"]}) is None


def test_a_process_that_has_ended_does_not_live_before_its_parent_asks(fork):
    def waits(connection):
        connection.send(this_process())
        connection.recv()

    child = fork(waits)
    owner = child.hear()
    os.kill(child.pid, signal.SIGSTOP)
    assert lives(owner) is True and process_lives(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: not lives(owner))
    assert os.path.exists(f"/proc/{child.pid}") and not process_lives(child.pid)


def test_a_record_tells_its_process_whatever_else_it_says():
    assert process_of({**this_process(), "why": "encode"}) == this_process()
    assert process_of({"pid": os.getpid()}) != this_process()
