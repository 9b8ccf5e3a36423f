import errno
import json
import os
import signal
import socket
import threading
import time

import pytest
from waiting import until

from pyserini_ance.storage import post as post_module
from pyserini_ance.storage.election import Held
from pyserini_ance.storage.owner import this_process
from pyserini_ance.storage.post import Post
from pyserini_ance.storage.watch import LOST_SECONDS

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def post(tmp_path) -> Post:
    return Post(tmp_path / "refresher.json")


def names(post: Post) -> list[str]:
    return sorted(path.name for path in post.path.parent.iterdir())


def holds(connection, path) -> None:
    """A child that holds the post; asked, it marks, and answers with what came of it."""
    post = Post(path)
    with post.hold("encode"):
        connection.send("holding")
        while True:
            where = connection.recv()
            try:
                post.mark("running", where)
                connection.send("marked")
            except RuntimeError as error:
                connection.send(f"lost {post.lost}: {error}")


def test_the_file_says_who_holds_the_post_and_what_it_does(post):
    assert post.read() is None
    with post.hold("waiting", device="cpu"):
        begun = post.read()
        assert begun["status"] == "running" and begun["where"] == "waiting" and begun["device"] == "cpu" and begun["layout"] == 1
        assert begun.items() >= this_process().items() and abs(begun["since"] - time.time()) < 5
        post.mark("running", "encode", documents=7)
        assert (post.read()["where"], post.read()["documents"], post.read()["device"]) == ("encode", 7, "cpu")
        assert post.read()["beat"] > begun["beat"]
    assert post.read()["status"] == "finished" and post.read()["where"] == "encode"
    assert names(post) == ["refresher.json"]


def test_the_heart_beats_while_the_post_is_held_and_not_longer(post):
    with post.hold("waiting"):
        first = post.read()
        until(lambda: post.read()["beat"] > first["beat"] + 3)
        assert {**post.read(), "beat": 0, "time": 0} == {**first, "beat": 0, "time": 0}
    last = post.read()
    time.sleep(0.1)
    assert post.read() == last
    assert not [thread for thread in threading.enumerate() if "heartbeat" in thread.name]


def test_marks_and_beats_of_many_threads_leave_a_whole_file_and_a_rising_beat(post, monkeypatch):
    monkeypatch.setattr(post_module, "BEAT_SECONDS", 0.0005)
    with post.hold("start"):
        threads = [threading.Thread(target=lambda n=n: [post.mark("running", f"{n} {i}") for i in range(40)]) for n in range(3)]
        for thread in threads:
            thread.start()
        seen = [post.read()]
        while any(thread.is_alive() for thread in threads):
            seen.append(post.read())
    beats = [record["beat"] for record in [*seen, post.read()]]
    assert beats == sorted(beats) and beats[-1] >= 120 and not post.lost


@pytest.mark.parametrize(
    ("error", "status", "reason"), [(ValueError("broken"), "failed", "broken"), (KeyboardInterrupt(), "stopped", "KeyboardInterrupt")]
)
def test_an_end_that_nobody_recorded_is_recorded(post, error, status, reason):
    with pytest.raises(type(error)), post.hold("encode"):
        raise error
    assert (post.read()["status"], post.read()["reason"], post.read()["where"]) == (status, reason, "encode")


def test_an_end_that_was_recorded_stays(post):
    with pytest.raises(ValueError), post.hold("encode"):
        post.mark("stopped", "step 7", reason="asked to")
        raise ValueError("later")
    assert (post.read()["status"], post.read()["reason"]) == ("stopped", "asked to")


def test_what_was_taken_is_held_and_what_was_left_is_taken_anew(post):
    assert post.take("preparing") is None
    with post.hold("working", device="cpu"):
        assert post.read()["term"] == 1 and post.read()["device"] == "cpu"
    with post.hold("again"):
        assert post.read()["term"] == 2 and post.read()["status"] == "running"
    post.mark("stopped", "later")
    assert post.read()["term"] == 2


def test_a_mark_takes_a_post_that_nobody_holds(post, fork):
    post.mark("running", "step 1")
    assert post.read()["term"] == 1 and names(post) == [".refresher.json.claim-1", "refresher.json"]
    post.mark("stopped", "step 2")
    assert names(post) == ["refresher.json"]
    assert fork(holds, post.path).hear() == "holding"
    with pytest.raises(Held):
        Post(post.path).mark("running", "step 2")


def test_a_living_holder_is_named(post, fork, clock):
    child = fork(holds, post.path)
    child.hear()
    expected = rf"in use by process {child.pid} on host {socket.gethostname()} since \d+-\d+-\d+ \d+:\d+:\d+, at work on encode .*refresher.json"
    with pytest.raises(Held, match=expected), post.hold("mine"):
        pass
    os.kill(child.pid, signal.SIGSTOP)  # it lives, however long it sleeps
    clock.sleep(LOST_SECONDS + 1)
    with pytest.raises(Held):
        post.take("mine")
    os.kill(child.pid, signal.SIGCONT)
    assert child.ask("step 7") == "marked" and post.read()["where"] == "step 7"


def test_a_killed_holder_is_replaced_at_once(post, fork):
    child = fork(holds, post.path)
    child.hear()
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: _state_of(child.pid) == "Z")  # nobody has asked for its exit code
    start = time.monotonic()
    with post.hold("mine"):
        assert time.monotonic() - start < LOST_SECONDS / 2
        assert post.read()["pid"] == os.getpid() and post.read()["term"] == 2


def _state_of(pid: int) -> str:
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]


def test_a_holder_of_another_host_that_beats_is_refused(post, fork):
    child = fork(holds, post.path, host="elsewhere")
    child.hear()
    start = time.monotonic()
    with pytest.raises(Held, match=f"process {child.pid} on host elsewhere"):
        post.take("mine")
    assert time.monotonic() - start < LOST_SECONDS / 2
    assert child.ask("step 7") == "marked"


@pytest.mark.usefixtures("impatient")
def test_a_holder_that_was_suspended_and_replaced_notices_and_keeps_still(post, fork):
    child = fork(holds, post.path, host="elsewhere")
    child.hear()
    for attempt in range(3):
        os.kill(child.pid, signal.SIGSTOP)
        with post.hold(f"attempt {attempt}"):
            ours = post.read()
            assert (ours["pid"], ours["term"]) == (os.getpid(), attempt + 2)
            os.kill(child.pid, signal.SIGCONT)
            assert child.ask("theirs").startswith(f"lost True: {post.path}: process {os.getpid()} on host {socket.gethostname()} has taken over")
            time.sleep(0.1)
            post.mark("running", "going on")
            assert post.read()["term"] == ours["term"] and post.read()["pid"] == os.getpid()


def test_a_last_word_of_a_replaced_holder_is_written_over(post):
    """Suspended between its look at the file and the writing, it writes once more."""
    Post(post.path).take("theirs")
    theirs = {**post.read(), "host": "elsewhere", "status": "stopped"}
    with post.hold("mine"):
        post.path.write_text(json.dumps(theirs))
        until(lambda: post.read()["where"] == "mine")
        post.path.write_text("{")  # damaged by whatever
        until(lambda: post.path.read_text() != "{")
    assert post.read()["where"] == "mine" and not post.lost


def test_a_replaced_holder_leaves_without_a_word(post):
    with post.hold("mine"):
        theirs = {**post.read(), "host": "elsewhere", "term": 2, "beat": 99}
        post.path.write_text(json.dumps(theirs))
        until(lambda: post.lost)
    assert post.read() == theirs
    with pytest.raises(RuntimeError, match="process .* on host elsewhere has taken over"):
        post.mark("finished", "the end")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_of_the_holder_is_not_the_holder(post, fork):
    def leaves(connection):
        try:
            post.mark("running", "fork")
        except Held as error:
            connection.send(str(error))

    with post.hold("mine"):
        assert f"in use by process {os.getpid()} " in fork(leaves).hear()
    with pytest.raises(ZeroDivisionError), post.hold("mine"):
        if (child := os.fork()) == 0:
            try:
                post._leave("failed")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert post.read()["status"] == "running"
        raise ZeroDivisionError


def test_a_host_that_gets_another_name_keeps_its_post(post, monkeypatch):
    with post.hold("mine"):
        monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
        post.mark("running", "on")
    assert post.read()["status"] == "finished"


def _full(path, value):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_full_disk_costs_heartbeats_and_not_the_post(post, monkeypatch, caplog):
    with post.hold("mine"):
        with monkeypatch.context() as full:
            full.setattr(post_module, "write_json", _full)
            until(lambda: "no heartbeat for now: [Errno 28] No space left on device" in caplog.text)
            with pytest.raises(OSError, match="No space left on device: .*refresher.json"):
                post.mark("running", "on")
            time.sleep(0.1)
            assert caplog.text.count("no heartbeat") == 1
        post.mark("running", "on again")
    assert post.read()["where"] == "on again" and post.read()["status"] == "finished"


def test_a_post_that_could_not_be_written_is_not_ours(post, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(post_module, "write_json", _full)
        with pytest.raises(OSError, match="No space left on device: .*refresher.json"):
            post.take("mine")
    assert names(post) == []
    Post(post.path).take("theirs")
    post.mark("running", "mine")
    assert post.read()["term"] == 2


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '"text"', "\xff"])
def test_a_damaged_file_is_an_error_with_its_name(post, content):
    post.path.write_text(content, encoding="latin-1")
    for attempt in (post.read, lambda: post.take("mine")):
        with pytest.raises(RuntimeError, match=r"refresher.json was damaged: found .* expected one JSON object; restore or remove it"):
            attempt()


def test_a_file_of_another_kind_is_an_error_with_its_name(post):
    post.path.write_text('{"layout": 1, "pid": 3}')
    with pytest.raises(RuntimeError, match=r"refresher.json lacks \['host', 'status', 'where'\]"):
        post.read()


def test_a_file_of_another_version_is_not_read_but_may_be_replaced(post):
    post.take("mine")
    newer = Post(post.path, layout=2)
    for attempt in (newer.read, newer.hold("mine").__enter__):
        with pytest.raises(RuntimeError, match="refresher.json was written with layout 1; this version reads 2"):
            attempt()
    newer.take("mine")
    assert newer.read()["layout"] == 2 and newer.read()["term"] == 2
