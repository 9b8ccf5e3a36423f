import re
import threading
import time
from contextlib import contextmanager

import pytest

from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.owner import this_process
from pyserini_ance.storage.post import Post
from pyserini_ance.storage.watch import Watch, clock

pytestmark = pytest.mark.usefixtures("quick")
FOREIGN = {"layout": 1, "status": "running", "where": "`encode`", "pid": 123, "host": "elsewhere", "started": 5, "term": 1, "beat": 1, "time": 0.0}


@pytest.fixture
def post(tmp_path) -> Post:
    return Post(tmp_path / "refresher.json")


@contextmanager
def beating(post: Post, times):
    """Another host's holder: a beat every 20 ms, its clock saying whatever comes."""
    end = threading.Event()

    def beat():
        for number, now in enumerate(times):
            write_json(post.path, {**FOREIGN, "beat": number, "time": now})
            if end.wait(0.02):
                return

    thread = threading.Thread(target=beat)
    thread.start()
    while not post.path.exists():
        time.sleep(0.001)
    yield
    end.set()
    thread.join()


def alive_over(watch: Watch, seconds: float) -> set[bool]:
    seen, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        seen.add(watch.alive())
        time.sleep(0.01)
    return seen


def test_nobody_is_not_alive(post):
    watch = Watch(post)
    assert watch.alive() is False and watch.describe() == "no process"
    with post.hold("work"):
        assert watch.alive() is True and watch.heard
    assert watch.alive() is False
    assert re.match(r"process \d+ on host \S+, finished at work, last heartbeat", watch.describe())


def test_a_process_of_this_host_is_looked_up_and_when_silent_for_long_is_as_good_as_gone(post, fork):
    child = fork(lambda connection: (connection.send(this_process()), connection.recv()))
    write_json(post.path, {**FOREIGN, **child.hear()})
    watch = Watch(post)
    assert alive_over(watch, 0.2) == {True} and not watch.undecided
    assert alive_over(watch, 0.4) == {True, False} and not watch.alive()
    write_json(post.path, {**FOREIGN, **post.read(), "beat": 10**6})
    assert watch.alive()
    child.end()
    assert not watch.alive()


@pytest.mark.parametrize(
    "times",
    [[1e9] * 999, [1e9 - 3600.0 * n for n in range(999)], [1e300, -1e300, float("inf"), float("nan"), "noon", None, {}] * 100],
    ids=["a clock that stands", "a clock that runs back", "nonsense"],
)
def test_no_clock_kills_who_beats(post, times):
    with beating(post, times):
        watch = Watch(post)
        assert alive_over(watch, 0.6) == {True}
        assert watch.heard and not watch.undecided
        assert "process 123 on host elsewhere, at work on `encode`, last heartbeat " in watch.describe()


def test_no_clock_revives_who_does_not_beat(post):
    watch = Watch(post)
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        write_json(post.path, {**FOREIGN, "time": time.time() + 1e6 * time.monotonic()})
        watch.alive()
        time.sleep(0.02)
    assert watch.alive() is False and not watch.heard


def test_a_host_that_falls_silent_is_lost_and_one_that_comes_back_is_not(post):
    write_json(post.path, FOREIGN)
    watch = Watch(post)
    assert watch.alive() is True and watch.undecided
    time.sleep(0.45)
    assert watch.alive() is False
    write_json(post.path, {**FOREIGN, "beat": 2})
    assert watch.alive() is True and not watch.undecided
    time.sleep(0.45)
    assert watch.alive() is False
    assert re.search(r"last heartbeat 19\d\d-\d\d-\d\d \d\d:\d\d:00, unchanged for [01] s", watch.describe())


def test_time_in_which_the_file_server_does_not_answer_does_not_count(post, monkeypatch):
    write_json(post.path, FOREIGN)
    watch, read = Watch(post), post.read
    assert watch.alive() is True
    monkeypatch.setattr(post, "read", lambda: time.sleep(0.6) or read())
    assert watch.alive() is True
    monkeypatch.undo()
    assert watch.alive() is True


def test_a_file_of_another_version_is_an_error(post):
    write_json(post.path, {**FOREIGN, "layout": 9})
    with pytest.raises(RuntimeError, match="written with layout 9; this version reads 1"):
        Watch(post).alive()


def test_clock():
    assert re.fullmatch(r"2026-11-\d\d \d\d:\d\d:22", clock(1795183402.9))
    assert clock(1e300) == "at an impossible time (1e+300)"
