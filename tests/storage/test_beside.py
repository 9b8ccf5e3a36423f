import os
import socket

import pytest

from pyserini_ance.storage.beside import beside, remove, sweep
from pyserini_ance.storage.files import write_whole

HOST = socket.gethostname()
NO_PROCESS = 1 << 30  # above the highest process number that Linux gives


def dies_while_it_writes(connection, path) -> None:
    os.fsync = lambda _: (connection.send("writing"), connection.recv())
    write_whole(path, "new")


def test_what_a_killed_writer_left_is_swept(tmp_path, fork):
    (tmp_path / "runs").mkdir()
    children = [fork(dies_while_it_writes, folder / "state.json") for folder in (tmp_path, tmp_path / "runs")]
    for child in children:
        child.hear()
    sweep(tmp_path)
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in left) == sorted(f".state.json.{child.pid}@{HOST}.tmp" for child in children)
    for child in children:
        child.end()
    sweep(tmp_path)
    assert os.listdir(tmp_path) == ["runs"] and os.listdir(tmp_path / "runs") == []


@pytest.mark.parametrize("kind", ["tmp", "claim", "gone"])
def test_only_what_is_known_to_be_nobodys_is_swept(tmp_path, kind):
    dead, foreign = f".a.{NO_PROCESS}@{HOST}.{kind}", f".a.{NO_PROCESS}@elsewhere.{kind}"
    others = [foreign, beside(tmp_path / "a", kind).name, f".a.{NO_PROCESS}.{kind}", f"a.{NO_PROCESS}@{HOST}.{kind}", ".git"]
    for name in (dead, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(others)
    sweep(tmp_path, {"host": "elsewhere", "pid": NO_PROCESS})
    assert sorted(os.listdir(tmp_path)) == sorted(others[1:])


def test_leases_of_dead_processes_are_swept(tmp_path):
    names = [f".a.lease.{HOST}.{pid}.0" for pid in (NO_PROCESS, os.getpid())]
    for name in names:
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert os.listdir(tmp_path) == names[1:]


def test_what_cannot_be_removed_is_reported(tmp_path, monkeypatch, caplog):
    def busy(path):
        raise OSError("Directory not empty")

    monkeypatch.setattr("shutil.rmtree", busy)
    remove(tmp_path)
    assert f"{tmp_path} is left over and can be removed by hand: Directory not empty" in caplog.text
