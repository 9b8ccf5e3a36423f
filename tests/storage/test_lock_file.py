"""Of several processes that acquire a lock at the same time, exactly one gets it."""

import json
import os
import time

import pytest

from pyserini_ance.storage.liveness import LOST_SECONDS, this_process
from pyserini_ance.storage.lock_file import LockFile, LockHeld, fencing_token
from pyserini_ance.storage.role_lock import RoleLock

ROUNDS, CANDIDATES = 40, 3
DEAD = {**this_process(), "pid": 1 << 30}  # above the highest process number that Linux gives
RECORD = {"layout": 1, "status": "running", "where": "encode", "term": 4, "beat": 9}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.json"


def compete(connection, folder) -> None:
    """Acquire the lock of each round at the given moment, and hold it until asked to release it."""
    while True:
        number, moment = connection.recv()
        time.sleep(max(0.0, moment - time.monotonic()))
        try:
            with RoleLock(folder / str(number) / "state.json").held("mine"):
                connection.send("acquired")
                connection.recv()
        except LockHeld:
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


def _silent_holder_of_other_host(folder) -> None:
    (folder / "state.json").write_text(json.dumps({**RECORD, **DEAD, "host": "elsewhere"}))


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize(
    ("before", "term", "rounds"),
    [
        (_nothing, 1, ROUNDS),
        (_dead_holder, 5, ROUNDS),
        (_dead_holder_and_claimants, 7, ROUNDS),
        (_silent_holder_of_other_host, 5, 3),
    ],
)
def test_exactly_one_of_the_processes_that_start_together_acquires_the_lock(
    tmp_path, fork, before, term, rounds
):
    candidates = [fork(compete, tmp_path) for _ in range(CANDIDATES)]
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        before(folder)
        for candidate in candidates:
            candidate.connection.send((number, time.monotonic() + 0.005))
        outcomes = [candidate.receive() for candidate in candidates]
        assert sorted(outcomes) == ["acquired"] + ["held"] * (CANDIDATES - 1), number
        record = RoleLock(folder / "state.json").read()
        assert record["pid"] == candidates[outcomes.index("acquired")].pid and record["term"] == term
        for candidate in candidates:
            assert candidate.ask() == "left"
        assert os.listdir(folder) == ["state.json"]


def test_a_claim_that_is_free_because_its_holder_has_finished_is_given_back(path, monkeypatch):
    """The other process finishes between our look at the file and our claim."""
    lock, claim = RoleLock(path), LockFile._claim

    def late(lock_file, token):
        monkeypatch.setattr(LockFile, "_claim", claim)
        with RoleLock(path).held("quicker"):
            pass
        return claim(lock_file, token)

    monkeypatch.setattr(LockFile, "_claim", late)
    lock.acquire("late")
    assert lock.read()["term"] == 2 and sorted(os.listdir(path.parent)) == [
        ".state.json.claim-2",
        "state.json",
    ]


def test_a_silent_claimant_of_another_host_is_passed_over(path, clock):
    path.with_name(".state.json.claim-1").write_text(json.dumps({**DEAD, "host": "elsewhere"}))
    start = clock.now
    with RoleLock(path).held("mine"):
        assert RoleLock(path).read()["term"] == 2 and clock.now - start >= LOST_SECONDS
        assert sorted(os.listdir(path.parent)) == [".state.json.claim-2", "state.json"]


def test_a_living_claimant_that_never_writes_is_named(path, fork, clock):
    def claim(connection):
        LockFile(path)._claim(1)
        connection.send("claimed")
        connection.recv()

    child = fork(claim)
    child.receive()
    with pytest.raises(LockHeld, match=f"in use by process {child.pid} on host"):
        RoleLock(path).acquire("mine")
    assert os.listdir(path.parent) == [".state.json.claim-1"]


@pytest.mark.usefixtures("fast_locks")
def test_a_late_write_of_a_replaced_holder_misleads_no_process(path, fork, monkeypatch):
    """It was suspended in the middle of a write; until the next heartbeat the file names the dead process."""
    monkeypatch.setattr("pyserini_ance.storage.role_lock.BEAT_SECONDS", 0.1)
    _dead_holder(path.parent)
    dead, candidate = path.read_text(), fork(compete, path.parent)
    with RoleLock(path).held("mine"):
        path.with_name("1").symlink_to(".")
        for _ in range(3):
            path.write_text(dead)
            candidate.connection.send((1, 0))
            assert candidate.receive() == "held" and candidate.ask() == "left"
    assert RoleLock(path).read()["term"] == 5


def test_a_link_that_was_made_though_the_call_failed_counts(path, monkeypatch):
    link = os.link

    def repeated(*args, **options):
        link(*args, **options)
        link(*args, **options)

    monkeypatch.setattr(os, "link", repeated)
    with RoleLock(path).held("mine"):
        assert RoleLock(path).read()["term"] == 1
    assert os.listdir(path.parent) == ["state.json"]


def test_waiting_for_a_holder_is_logged(path, clock, caplog):
    _silent_holder_of_other_host(path.parent)
    with caplog.at_level("INFO"):
        assert LockFile(path).check_free()["where"] == "encode"
    assert (
        f"waiting up to 60 s to see whether process {1 << 30} on host elsewhere is alive: {path}"
        in caplog.text
    )
    assert fencing_token(None) == 0
