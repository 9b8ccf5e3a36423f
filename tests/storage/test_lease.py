"""Leases: a folder that is read stays, whatever readers and removers do at the same time."""

import errno
import json
import os
import resource
import signal
import socket
import time

import pytest
from helpers.waiting import until

from pyserini_ance.storage import lease as lease_module
from pyserini_ance.storage.lease import lease_holders, leased, remove_unless_leased, sweep_leases

ROUNDS = 150
NOBODY = 65534  # a user without permissions, for tests that run as root


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "ance-00000001"
    made.mkdir()
    (made / "part").write_text("whole")
    return made


def lease_of_other_host(folder, age_seconds: float, host: str = "elsewhere"):
    path = folder.with_name(f".{folder.name}.lease.{host}.7.0")
    path.write_text(json.dumps({"pid": 7, "host": host, "started": 5, "why": "encode", "since": -1e300}))
    os.utime(path, (time.time() - age_seconds,) * 2)
    return path


def read_leased(connection, folder) -> None:
    with leased(folder, "encode documents"):
        connection.send("reading")
        connection.recv()
    connection.send("done")


def test_a_folder_stays_until_its_last_reader_is_done(folder):
    with leased(folder, "encode"), leased(folder, "evaluate"):
        expected = [f"process {os.getpid()} on host {socket.gethostname()} since {time.strftime('%Y-')}"] * 2
        holders = lease_holders(folder)
        assert [holder[: len(start)] for holder, start in zip(holders, expected, strict=True)] == expected
        assert holders[0].endswith("(encode)") and holders[1].endswith("(evaluate)")
        assert remove_unless_leased(folder) is False and (folder / "part").read_text() == "whole"
    assert lease_holders(folder) == [] and remove_unless_leased(folder) is True
    assert os.listdir(folder.parent) == []


def test_an_error_while_reading_ends_the_lease(folder):
    with pytest.raises(ValueError), leased(folder, "encode"):
        raise ValueError
    assert os.listdir(folder.parent) == [folder.name]


def test_a_lease_covers_one_folder(folder):
    other = folder.with_name(folder.name + "0")
    other.mkdir()
    strange = folder.with_name("ance-0000000[0-9]")
    strange.mkdir()
    with leased(folder, "encode"):
        assert remove_unless_leased(other) and remove_unless_leased(strange)
        assert not remove_unless_leased(folder)


def test_a_removed_folder_can_be_removed_and_leased_again(folder):
    assert remove_unless_leased(folder) and remove_unless_leased(folder)
    with leased(folder, "look for it"):
        assert not folder.exists() and remove_unless_leased(folder)


def test_the_lease_of_a_killed_reader_does_not_count(folder, fork, caplog):
    child = fork(read_leased, folder)
    child.receive()
    os.kill(child.pid, signal.SIGSTOP)
    with caplog.at_level("INFO"):
        assert remove_unless_leased(folder) is False
    assert f"{folder} is kept: it is read by process {child.pid} on host" in caplog.text
    child.end()
    assert remove_unless_leased(folder) is True
    assert os.listdir(folder.parent) == []


def test_a_lease_of_another_host_expires_after_a_day_of_the_file_servers_clock(folder, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1e12)  # this host's clock does not count
    path = lease_of_other_host(folder, 0)
    now = folder.stat().st_mtime
    os.utime(path, (now - 24 * 3600 + 60,) * 2)
    assert remove_unless_leased(folder) is False
    assert lease_holders(folder) == [
        "process 7 on host elsewhere since at an impossible time (-1e+300) (encode)"
    ]
    os.utime(path, (now - 24 * 3600 - 60,) * 2)
    assert remove_unless_leased(folder) is True and not path.exists()
    assert os.listdir(folder.parent) == []


def test_a_long_read_renews_its_lease(folder, monkeypatch):
    monkeypatch.setattr(lease_module, "RENEWAL_SECONDS", 0.01)
    with leased(folder, "encode"):
        (path,) = folder.parent.glob(".*")
        for _ in range(2):
            os.utime(path, (0, 0))
            until(lambda: path.stat().st_mtime != 0)


def read_on_request(connection, folder) -> None:
    """On each request: acquire a lease, open the folder, and look at it for a while."""
    while True:
        moment = connection.recv()
        time.sleep(max(0.0, moment - time.monotonic()))
        with leased(folder, "race"):
            try:
                seen = {(folder / "part").read_text()}
            except FileNotFoundError:
                seen = set()
            if seen:
                for _ in range(20):
                    seen.add((folder / "part").read_text() if (folder / "part").exists() else "lost")
            connection.send(seen)


def test_a_reader_finds_the_folder_whole_or_gone(tmp_path, fork):
    """The folder is removed and opened at nearly the same moment; a folder that a reader has opened stays."""
    folder, outcomes = tmp_path / "made", set()
    reader = fork(read_on_request, folder)
    for number in range(ROUNDS):
        folder.mkdir(exist_ok=True)
        (folder / "part").write_text("whole")
        moment = time.monotonic() + 0.002
        reader.connection.send(moment)
        time.sleep(max(0.0, moment - time.monotonic() + number % 30 * 0.0001))
        removed, seen = remove_unless_leased(folder), reader.receive()
        assert (folder / "part").exists() is not removed
        outcomes.add((removed, tuple(seen)))
    # The last outcome: removed after its reader was done.
    assert outcomes <= {(True, ()), (False, ("whole",)), (True, ("whole",))} and len(outcomes) > 1, outcomes


def remove_slowly(connection, folder) -> None:
    rename = os.rename

    def suspended(*paths):
        connection.send("about to rename")
        connection.recv()
        rename(*paths)

    os.rename = suspended
    connection.send(remove_unless_leased(folder))


def test_a_reader_waits_for_a_remover_that_has_seen_no_lease(folder, fork):
    remover, reader = fork(remove_slowly, folder), fork(read_leased, folder)
    remover.receive()
    assert not reader.connection.poll(0.2)
    assert remover.ask() == "about to rename"  # back
    assert not reader.connection.poll(0.1) and not folder.exists()
    assert remover.ask() is False
    assert reader.receive() == "reading" and (folder / "part").exists()


def test_a_reader_does_not_wait_for_a_dead_remover(folder, fork):
    remover = fork(remove_slowly, folder)
    remover.receive()
    remover.end()
    with leased(folder, "encode"):
        assert (folder / "part").exists()


def test_a_remover_that_was_suspended_in_between_moves_the_folder_back(folder, fork, monkeypatch):
    monkeypatch.setattr(lease_module, "REMOVAL_SECONDS", 0.05)
    remover = fork(remove_slowly, folder)
    remover.receive()
    with leased(folder, "encode"):
        assert remover.ask() == "about to rename"
        assert remover.ask() is False
        assert (folder / "part").read_text() == "whole"
    assert os.listdir(folder.parent) == [folder.name]


def test_a_folder_of_the_same_name_is_removed_again_when_the_first_is_left_over(folder, monkeypatch, caplog):
    def busy(path):
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr("shutil.rmtree", busy)
    for _ in range(2):
        folder.mkdir(exist_ok=True)
        (folder / "part").write_text("whole")
        assert remove_unless_leased(folder) is True and not folder.exists()
    assert caplog.text.count("is left over and can be removed by hand") == 2


def without_permission(connection, folder, act) -> None:
    """Change into the parent of `folder` first: other users cannot reach pytest's private folders."""
    os.chdir(folder.parent)
    os.chmod(".", 0o555)
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    report(connection, act)


def on_a_full_disk(connection, folder, act) -> None:
    """A limit on the size of files stands in for a full disk."""
    os.chdir(folder.parent)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    report(connection, act)


def report(connection, act) -> None:
    try:
        act()
        connection.send("nothing happened")
    except OSError as error:
        connection.send((type(error).__name__, str(error)))


@pytest.mark.parametrize(
    ("condition", "kind", "message"),
    [
        (without_permission, "PermissionError", "Permission denied"),
        (on_a_full_disk, "OSError", "File too large"),
    ],
)
def test_a_lease_that_cannot_be_written_is_an_error_with_its_cure(folder, fork, condition, kind, message):
    def read():
        with leased(type(folder)("here") / folder.name, "encode"):
            pass

    (folder.parent / "here").symlink_to(".")
    seen = fork(condition, folder, read).receive()
    os.chmod(folder.parent, 0o755)
    assert seen[0] == kind
    expected = (
        f"{message}: cannot write here, so cannot keep {folder.name} from being removed "
        "while it is read (encode). Make this folder"
    )
    assert expected in seen[1] and seen[1].endswith(": 'here'")
    assert sorted(os.listdir(folder.parent)) == [folder.name, "here"]


def test_a_folder_that_may_not_be_removed_is_named(folder, fork):
    kind, message = fork(
        without_permission, folder, lambda: remove_unless_leased(type(folder)(folder.name))
    ).receive()
    os.chmod(folder.parent, 0o755)
    assert kind == "PermissionError" and folder.name in message and (folder / "part").exists()


def test_sweeping_removes_leases_of_dead_processes_only(tmp_path, fork):
    def reads(connection, folder):
        with leased(folder, "reads"):
            connection.send(True)
            connection.recv()

    folder = tmp_path / "a"
    folder.mkdir()
    dead, living = fork(reads, folder), fork(read_leased, folder)
    assert dead.receive() and living.receive()
    dead.end()
    sweep_leases(tmp_path)
    [left] = tmp_path.glob(".a.lease.*")
    assert f".{living.pid}." in left.name
