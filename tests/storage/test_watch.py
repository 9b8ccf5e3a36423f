import re

import pytest

from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.owner import this_process
from pyserini_ance.storage.post import Post
from pyserini_ance.storage.watch import LOST_SECONDS, Watch, clock

pytestmark = pytest.mark.usefixtures("clock")
FOREIGN = {"layout": 1, "status": "running", "where": "`encode`", "pid": 123, "host": "elsewhere", "started": 5, "term": 1, "beat": 1, "time": 0.0}


@pytest.fixture
def post(tmp_path) -> Post:
    return Post(tmp_path / "refresher.json")


def test_nobody_is_not_alive(post):
    watch = Watch(post)
    assert watch.alive() is False and watch.describe() == "no process"
    with post.hold("work"):
        assert watch.alive() is True and watch.heard
    assert watch.alive() is False
    assert re.match(r"process \d+ on host \S+, finished at work, last heartbeat", watch.describe())


def test_a_process_of_this_host_is_looked_up_and_when_silent_for_long_is_as_good_as_gone(post, fork, clock):
    child = fork(lambda connection: (connection.send(this_process()), connection.recv()))
    write_json(post.path, {**FOREIGN, **child.hear()})
    watch = Watch(post)
    for seconds, alive in ((0, True), (59, True), (2, False)):
        clock.sleep(seconds)
        assert watch.alive() is alive and not watch.undecided
    write_json(post.path, {**FOREIGN, **post.read(), "beat": 10**6})
    assert watch.alive()
    child.end()
    assert not watch.alive()


@pytest.mark.parametrize(
    "times",
    [[1e9] * 9, [1e9 - 3600.0 * n for n in range(9)], [1e300, -1e300, float("inf"), float("nan"), "noon", None, {}]],
    ids=["a clock that stands", "a clock that runs back", "nonsense"],
)
def test_no_clock_kills_who_beats(post, clock, times):
    """Another host's holder, its clock saying whatever comes."""
    watch = Watch(post)
    for number, now in enumerate(times):
        write_json(post.path, {**FOREIGN, "beat": number, "time": now})
        assert watch.alive() is True
        clock.sleep(LOST_SECONDS - 1)
        assert watch.alive() is True
        assert "process 123 on host elsewhere, at work on `encode`, last heartbeat " in watch.describe()
    assert watch.heard and not watch.undecided


def test_no_clock_revives_who_does_not_beat(post, clock):
    watch = Watch(post)
    for second in range(LOST_SECONDS + 1):
        write_json(post.path, {**FOREIGN, "time": 1e9 + 1e6 * second})
        assert watch.alive() is (second < LOST_SECONDS)
        clock.sleep(1)
    assert not watch.heard


def test_a_host_that_falls_silent_is_lost_and_one_that_comes_back_is_not(post, clock):
    write_json(post.path, FOREIGN)
    watch = Watch(post)
    assert watch.alive() is True and watch.undecided
    clock.sleep(LOST_SECONDS + 1)
    assert watch.alive() is False
    write_json(post.path, {**FOREIGN, "beat": 2})
    assert watch.alive() is True and not watch.undecided
    clock.sleep(LOST_SECONDS + 1)
    assert watch.alive() is False
    assert re.search(r"last heartbeat 19\d\d-\d\d-\d\d \d\d:\d\d:00, unchanged for 61 s", watch.describe())


def test_time_in_which_the_file_server_does_not_answer_does_not_count(post, clock, monkeypatch):
    write_json(post.path, FOREIGN)
    watch, read = Watch(post), post.read
    assert watch.alive() is True
    with monkeypatch.context() as hanging:
        hanging.setattr(post, "read", lambda: clock.sleep(100) or read())
        assert watch.alive() is True
    assert watch.alive() is True


def test_a_file_of_another_version_is_an_error(post):
    write_json(post.path, {**FOREIGN, "layout": 9})
    with pytest.raises(RuntimeError, match="written with layout 9; this version reads 1"):
        Watch(post).alive()


def test_clock():
    assert re.fullmatch(r"2026-11-\d\d \d\d:\d\d:22", clock(1795183402.9))
    assert clock(1e300) == "at an impossible time (1e+300)"
