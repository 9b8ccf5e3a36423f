import json
import os
import time

import pytest

from pyserini_ance.storage import election as election_module
from pyserini_ance.storage.election import Election, Held
from pyserini_ance.storage.owner import this_process
from pyserini_ance.storage.post import Post
from pyserini_ance.storage.watch import LOST_SECONDS

ROUNDS, CANDIDATES = 40, 3
DEAD = {**this_process(), "pid": 1 << 30}  # above the highest process number that Linux gives
RECORD = {"layout": 1, "status": "running", "where": "encode", "term": 4, "beat": 9}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.json"


def stands(connection, folder) -> None:
    """A candidate: takes part in one round after another, at the moment it is told; holds what it won until told to leave."""
    while True:
        number, moment = connection.recv()
        time.sleep(max(0.0, moment - time.monotonic()))
        try:
            with Post(folder / str(number) / "state.json").hold("mine"):
                connection.send("won")
                connection.recv()
        except Held:
            connection.send("held")
            connection.recv()
        connection.send("left")


def _nothing(folder) -> None:
    pass


def _dead_holder(folder) -> None:
    (folder / "state.json").write_text(json.dumps({**RECORD, **DEAD}))


def _dead_holder_and_claimants(folder) -> None:
    _dead_holder(folder)
    for term in (5, 6):
        (folder / f".state.json.claim-{term}").write_text(json.dumps(DEAD))


def _silent_foreign_holder(folder) -> None:
    (folder / "state.json").write_text(json.dumps({**RECORD, **DEAD, "host": "elsewhere"}))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("before", "term", "rounds"),
    [(_nothing, 1, ROUNDS), (_dead_holder, 5, ROUNDS), (_dead_holder_and_claimants, 7, ROUNDS), (_silent_foreign_holder, 5, 3)],
)
def test_of_those_that_start_together_exactly_one_wins(tmp_path, fork, before, term, rounds):
    candidates = [fork(stands, tmp_path) for _ in range(CANDIDATES)]
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        before(folder)
        for candidate in candidates:
            candidate.connection.send((number, time.monotonic() + 0.005))
        outcomes = [candidate.hear() for candidate in candidates]
        assert sorted(outcomes) == ["held"] * (CANDIDATES - 1) + ["won"], number
        record = Post(folder / "state.json").read()
        assert record["pid"] == candidates[outcomes.index("won")].pid and record["term"] == term
        for candidate in candidates:
            assert candidate.ask() == "left"
        assert os.listdir(folder) == ["state.json"]


def test_a_claim_that_was_free_because_its_winner_has_written_is_given_back(path, monkeypatch):
    """The winner finishes between our look at the file and our claim."""
    post, claim = Post(path), Election._claim

    def late(election, term):
        monkeypatch.setattr(Election, "_claim", claim)
        with Post(path).hold("quicker"):
            pass
        return claim(election, term)

    monkeypatch.setattr(Election, "_claim", late)
    post.take("late")
    assert post.read()["term"] == 2 and sorted(os.listdir(path.parent)) == [".state.json.claim-2", "state.json"]


def test_a_claimant_of_another_host_that_stays_silent_is_passed_over(path, clock):
    path.with_name(".state.json.claim-1").write_text(json.dumps({**DEAD, "host": "elsewhere"}))
    start = clock.now
    with Post(path).hold("mine"):
        assert Post(path).read()["term"] == 2 and clock.now - start >= LOST_SECONDS
        assert sorted(os.listdir(path.parent)) == [".state.json.claim-2", "state.json"]


def test_a_claimant_that_lives_and_never_writes_is_named(path, fork, clock):
    def claims(connection):
        Election(path)._claim(1)
        connection.send("claimed")
        connection.recv()

    child = fork(claims)
    child.hear()
    with pytest.raises(Held, match=f"in use by process {child.pid} on host"):
        Post(path).take("mine")
    assert os.listdir(path.parent) == [".state.json.claim-1"]


@pytest.mark.usefixtures("quick")
def test_nobody_is_misled_by_what_a_replaced_holder_wrote_over_the_file(path, fork, monkeypatch):
    """It was killed or suspended in mid-writing; until the next heartbeat the file names the dead."""
    monkeypatch.setattr("pyserini_ance.storage.post.BEAT_SECONDS", 0.1)
    _dead_holder(path.parent)
    dead, candidate = path.read_text(), fork(stands, path.parent)
    with Post(path).hold("mine"):
        path.with_name("1").symlink_to(".")
        for _ in range(3):
            path.write_text(dead)
            candidate.connection.send((1, 0))
            assert candidate.hear() == "held" and candidate.ask() == "left"
    assert Post(path).read()["term"] == 5


def test_a_link_that_is_told_to_have_failed_but_was_made_is_ours(path, monkeypatch):
    link = os.link

    def repeated(*args, **options):
        link(*args, **options)
        link(*args, **options)

    monkeypatch.setattr(os, "link", repeated)
    with Post(path).hold("mine"):
        assert Post(path).read()["term"] == 1
    assert os.listdir(path.parent) == ["state.json"]


def test_who_waits_says_so(path, clock, caplog):
    _silent_foreign_holder(path.parent)
    with caplog.at_level("INFO"):
        assert Election(path).vacant()["where"] == "encode"
    assert f"waiting up to 60 s to see whether process {1 << 30} on host elsewhere is alive: {path}" in caplog.text
    assert election_module.term_of(None) == 0
