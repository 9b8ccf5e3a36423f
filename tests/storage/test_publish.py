"""Folders that appear complete or not at all, and stay while they are read."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from helpers.elsewhere import elsewhere
from safetensors import SafetensorError

from pyserini_ance.storage import files, publish
from pyserini_ance.storage.files import beside, remove_leftovers, write_json
from pyserini_ance.storage.locks import is_held


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "parent").mkdir()
    return tmp_path / "parent" / "published"


@pytest.fixture
def published(folder):
    with publish.publishing(folder, {"step": 7}) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "a").write_text("abc")
        (temporary / "b").touch(mode=0o600)  # as safetensors makes files
    return folder


@pytest.fixture
def writer(folder):
    """Another process that fills the folder, and finishes when its input ends."""
    imports = "from pyserini_ance.storage.publish import publishing"
    with elsewhere(imports, "publishing(Path(sys.argv[1]), {})", folder) as process:
        yield process


def fill(temporary):
    (temporary / "part").write_text("mine")


def test_a_link_to_a_folder_is_followed(tmp_path, folder):
    link = tmp_path / "link"
    link.symlink_to("parent/published")
    with publish.whole_folder(link) as temporary:
        (temporary / "a").touch()
    assert link.is_symlink() and os.listdir(folder) == ["a"] and os.listdir(folder.parent) == ["published"]


def test_a_folder_that_another_process_still_fills_is_not_taken_for_the_made_one(folder, monkeypatch):
    beside(folder, "unfinished").mkdir()  # by a child of a process that was killed
    monkeypatch.setattr(files, "remove", lambda path: None)
    with (
        pytest.raises(OSError, match="end the process that writes there") as raised,
        publish.whole_folder(folder),
    ):
        pass
    assert not isinstance(raised.value, FileExistsError)


def test_the_manifest_tells_what_was_written(published):
    manifest = publish.read_manifest(published)
    assert manifest["step"] == 7
    assert {name: part["bytes"] for name, part in manifest["parts"].items()} == {"inner/a": 3, "b": 0}
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["parts"]["inner/a"]["sha256"] == sha256
    assert sorted(os.listdir(published)) == ["b", "inner", publish.MANIFEST]
    assert os.listdir(published.parent) == ["published"]
    modes = {(published / name).stat().st_mode for name in ("b", publish.MANIFEST)}
    assert modes == {(published / "inner" / "a").stat().st_mode}


def test_everything_is_on_disk_before_the_folder_has_its_name(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync", lambda path: synced.append((path.name, folder.exists())))
    with publish.whole_folder(folder) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "part").write_text("whole")
        assert not folder.exists()
    assert synced == [("inner", False), ("part", False), (temporary.name, False), ("parent", True)]


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), SafetensorError("disk full")])
def test_an_error_leaves_nothing(folder, error):
    kind = OSError if isinstance(error, SafetensorError) else type(error)
    with pytest.raises(kind), publish.publishing(folder, {}) as temporary:
        fill(temporary)
        raise error
    assert os.listdir(folder.parent) == []
    publish.publish_once(folder, {}, fill)
    assert list(publish.read_manifest(folder)["parts"]) == ["part"]


def test_other_files_are_not_replaced(folder, published):
    with pytest.raises(FileExistsError, match="exists and is not empty"), publish.publishing(published, {}):
        pytest.fail("made again")
    other = folder.with_name("thesis")
    other.mkdir()
    publish.publish_once(other, {}, fill)  # an empty folder is free
    (other / publish.MANIFEST).unlink()
    with pytest.raises(FileExistsError, match="thesis exists and is not empty"):
        publish.publish_once(other, {}, fill)
    assert os.listdir(other) == ["part"]


def test_a_folder_that_another_process_makes_is_waited_for(folder, writer):
    with ThreadPoolExecutor() as threads:
        here = threads.submit(publish.publish_once, folder, {}, lambda _: pytest.fail("filled twice"))
        assert not folder.exists() and is_held(beside(folder, "writing"))
        writer.stdin.close()
        here.result(60)
    assert publish.read_manifest(folder)["parts"] == {} and writer.wait() == 0
    assert os.listdir(folder.parent) == ["published"]


def test_what_killed_processes_leave_is_removed_and_what_living_ones_hold_is_not(
    tmp_path, folder, writer, monkeypatch
):
    inside = beside(beside(folder, "unfinished") / "manifest.json", "writing")
    inside.touch()  # taking and removing this lock would pull a file from under the writer's hands
    remove_leftovers(folder.parent)
    assert sorted(os.listdir(folder.parent)) == [".published.unfinished", ".published.writing"]
    assert inside.exists()
    writer.kill(), writer.wait()
    for kind in ("reading", "held"):
        beside(tmp_path / "run", kind).touch()
    beside(tmp_path / "run", "removed").mkdir()
    beside(tmp_path / "store", "removed").mkdir()  # not removed at the time: on NFS with a file that was open
    (tmp_path / ".other.lock").touch()
    with monkeypatch.context() as another_user:
        another_user.setattr(files, "locked", Mock(side_effect=PermissionError))
        remove_leftovers(tmp_path)
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".other.lock", "parent"] and os.listdir(folder.parent) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from pyserini_ance.storage.publish import publish_once, remove_unless_leased

calls, folder = int(sys.argv[1]), Path(sys.argv[2])

def count(event, arguments):
    global calls
    if event in {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock"}:
        if str(arguments[0]).startswith(str(folder.parent)) or event == "fcntl.flock":
            calls -= 1
            if not calls:
                os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
publish_once(folder, {}, lambda temporary: (temporary / "part").write_text("whole"))
remove_unless_leased(folder)
print("done")
"""


@pytest.mark.parametrize("calls", range(1, 60, 4))
def test_a_kill_anywhere_leaves_nothing_that_stays(folder, calls):
    """Before the n-th call that changes files, from the first to the last of publishing and removing."""
    command = [sys.executable, "-c", KILLED, str(calls), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -9 or done.stdout == "done\n", done.stderr
    if folder.exists():
        assert publish.read_manifest(folder)
    remove_leftovers(folder.parent)
    publish.publish_once(folder, {}, fill)
    assert publish.read_manifest(folder) and os.listdir(folder.parent) == ["published"]


def test_a_folder_stays_while_it_is_read(published):
    with publish.leased(published), publish.leased(published):
        assert not publish.remove_unless_leased(published) and publish.read_manifest(published)
    assert publish.remove_unless_leased(published) and os.listdir(published.parent) == []
    assert publish.remove_unless_leased(published)
    with publish.leased(published):  # need not exist
        assert not publish.is_complete(published)


@pytest.mark.parametrize(
    ("damage", "message", "is_seen_by_size"),
    [
        (lambda folder: (folder / "inner" / "a").write_text("abd"), "inner/a is not what", False),
        (lambda folder: (folder / "inner" / "a").write_text("ab"), "inner/a is not what", True),
        (lambda folder: (folder / "inner" / "a").unlink(), "inner/a is not what", True),
        (lambda folder: write_json(folder / publish.MANIFEST, {"format": 99}), "has format 99", True),
        (lambda folder: (folder / publish.MANIFEST).unlink(), "is not complete", True),
    ],
)
def test_damage_is_an_error(published, damage, message, is_seen_by_size):
    damage(published)
    with pytest.raises((RuntimeError, FileNotFoundError), match=message):
        publish.read_manifest(published, verify=not is_seen_by_size)
