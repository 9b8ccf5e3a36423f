import json
import os
import subprocess
import sys

from pyserini_ance.storage.owner import _start_ticks, lives, this_process


def test_a_process_lives_until_it_ends():
    source = "import json, sys; from pyserini_ance.storage.owner import this_process; print(json.dumps(this_process()), flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    owner = json.loads(child.stdout.readline())
    assert owner["pid"] == child.pid and lives(owner) is True
    child.communicate()
    assert lives(owner) is False


def test_a_process_that_has_ended_lives_no_more_though_its_parent_has_not_asked():
    child = subprocess.Popen(["sleep", "60"])
    owner = {**this_process(), "pid": child.pid, "started": _start_ticks(child.pid)}
    assert lives(owner) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert lives(owner) is False
    child.wait()


def test_a_number_that_was_given_again_is_another_process():
    assert lives({**this_process(), "pid": 1}) is False


def test_what_cannot_be_known():
    assert lives({**this_process(), "host": "elsewhere"}) is None
    assert lives({"pid": os.getpid(), "host": this_process()["host"]}) is None
