"""Temporary files and leases of dead processes are removed, and nothing else."""

import os

import pytest

from pyserini_ance.storage import liveness
from pyserini_ance.storage.files import write_whole
from pyserini_ance.storage.liveness import creator_of, remove, remove_leftovers, temp_path

HOST = liveness.host_name()
NO_PROCESS = 1 << 30  # above the highest process number that Linux gives


def block_while_writing(connection, path) -> None:
    os.fsync = lambda _: (connection.send("writing"), connection.recv())
    write_whole(path, "new")


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path, fork):
    (tmp_path / "runs").mkdir()
    children = [fork(block_while_writing, folder / "state.json") for folder in (tmp_path, tmp_path / "runs")]
    for child in children:
        child.receive()
    remove_leftovers(tmp_path)
    remaining = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(map(creator_of, remaining)) == sorted((HOST, child.pid) for child in children)
    for child in children:
        child.end()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["runs"] and os.listdir(tmp_path / "runs") == []


@pytest.mark.parametrize("kind", ["tmp", "claim", "gone", "removal"])
def test_each_call_has_a_name_of_its_own_that_tells_its_process(tmp_path, kind):
    names = [temp_path(tmp_path / "a.json", kind) for _ in range(2)]
    assert names[0] != names[1]
    assert [*map(creator_of, names)] == [(HOST, os.getpid())] * 2


@pytest.mark.parametrize("kind", ["tmp", "claim", "gone"])
def test_only_files_of_processes_known_to_be_dead_are_removed(tmp_path, kind):
    dead, other_host = f".a.{NO_PROCESS}@{HOST}.{kind}", f".a.{NO_PROCESS}@elsewhere+.{kind}"
    others = [
        other_host,
        temp_path(tmp_path / "a", kind).name,
        f".a.{NO_PROCESS}.{kind}",
        f"a.{NO_PROCESS}@{HOST}.{kind}",
        ".git",
    ]
    for name in (dead, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(others)
    remove_leftovers(tmp_path, {"host": "elsewhere", "pid": NO_PROCESS})
    assert sorted(os.listdir(tmp_path)) == sorted(others[1:])


def test_leases_of_dead_processes_are_removed(tmp_path):
    names = [f".a.lease.{HOST}.{pid}.0" for pid in (NO_PROCESS, os.getpid())]
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == names[1:]


def test_a_failed_removal_is_logged(tmp_path, monkeypatch, caplog):
    def busy(path):
        raise OSError("Directory not empty")

    monkeypatch.setattr("shutil.rmtree", busy)
    remove(tmp_path)
    assert f"{tmp_path} is left over and can be removed by hand: Directory not empty" in caplog.text
