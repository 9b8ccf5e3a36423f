"""Published folders: claimed by one process, committed by a manifest, never seen half made."""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.waiting import until

from pyserini_ance.storage import claim, liveness, publish
from pyserini_ance.storage.claim import ClaimLost
from pyserini_ance.storage.publish import (
    CLAIM,
    MANIFEST,
    BeingWritten,
    claimed,
    is_complete,
    publishing,
    read_manifest,
)

OWNER = """
import sys, time
from pathlib import Path
from pyserini_ance.storage.publish import publishing

with publishing(Path(sys.argv[1]), {}) as folder:
    (folder / "half").write_text("written")
    print("claimed", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "published_folders" / "published"


@pytest.fixture
def owner(folder):
    """Another process that has claimed `folder` and keeps writing."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, folder], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


@pytest.fixture
def published(folder):
    with publishing(folder, {"step": 7}) as claimed:
        (claimed / "inner").mkdir()
        (claimed / "inner" / "a").write_text("abc")
        (claimed / "b").write_bytes(b"")
    return folder


def _publish(folder):
    with publishing(folder, {}) as claimed:
        (claimed / "part").write_text("mine")


def test_removed_parts_leave_a_complete_folder(published):
    for _ in range(2):
        publish.remove_parts(published, ("b", "never there"))
        assert set(read_manifest(published)["parts"]) == {"inner/a"} and not (published / "b").exists()
    assert read_manifest(published)["step"] == 7


def test_a_part_that_outlived_its_removal_from_the_manifest_is_removed_later(published):
    publish.remove_parts(published, ("b",))
    (published / "b").write_bytes(b"")
    publish.remove_parts(published, ("b",))
    assert not (published / "b").exists()


def test_files_have_the_mode_of_new_files(folder, tmp_path):
    """safetensors writes files that only their owner can read."""
    (tmp_path / "new").touch()
    with publishing(folder, {}) as claimed, publish.whole_folder(tmp_path / "whole") as temporary:
        for inside in (claimed, temporary):
            (inside / "weights").touch(mode=0o600)
    modes = {path.stat().st_mode for path in (folder / "weights", tmp_path / "whole" / "weights")}
    assert modes == {(tmp_path / "new").stat().st_mode}


def test_a_folder_is_claimed_until_it_is_committed(folder):
    with publishing(folder, {}) as claimed:
        assert claimed == folder
        assert json.loads((folder / CLAIM).read_text())["pid"] == os.getpid()
        assert not is_complete(folder)
        with pytest.raises(FileNotFoundError, match="is not complete"):
            read_manifest(folder)
    assert is_complete(folder)
    assert sorted(os.listdir(folder.parent)) == ["published"]


def test_the_manifest_says_what_was_written(published):
    manifest = read_manifest(published)
    assert manifest["step"] == 7
    assert {name: part["bytes"] for name, part in manifest["parts"].items()} == {"inner/a": 3, "b": 0}
    assert (
        manifest["parts"]["inner/a"]["sha256"]
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    assert sorted(os.listdir(published)) == ["b", "inner", MANIFEST]


def test_the_claim_stays_while_parts_are_hashed(folder, monkeypatch):
    """Hashing takes minutes for large files: a folder without a claim would be taken over in the meantime."""
    seen = []
    hashed = publish.sha256_file
    monkeypatch.setattr(
        publish, "sha256_file", lambda path: seen.append((folder / CLAIM).exists()) or hashed(path)
    )
    _publish(folder)
    assert seen == [True]


def test_a_complete_folder_is_not_overwritten(published):
    with pytest.raises(FileExistsError, match="complete already"):
        _publish(published)
    assert read_manifest(published)["step"] == 7


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_an_error_inside_leaves_nothing(folder, error):
    with pytest.raises(type(error)), publishing(folder, {}) as claimed:
        (claimed / "part").write_text("half")
        raise error
    assert os.listdir(folder.parent) == []
    _publish(folder)
    assert list(read_manifest(folder)["parts"]) == ["part"]


def test_an_error_while_committing_leaves_nothing(folder, monkeypatch):
    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="disk full"):
        _publish(folder)
    assert os.listdir(folder.parent) == []


def test_a_living_owner_is_left_alone(folder, owner):
    with pytest.raises(RuntimeError, match=f"being written by process {owner.pid}"):
        _publish(folder)
    assert sorted(os.listdir(folder)) == [CLAIM, "half"]
    assert os.listdir(folder.parent) == ["published"]


def test_a_claim_alone_is_held_by_one_living_process_and_leaves_nothing(folder, owner):
    with pytest.raises(BeingWritten, match=f"by process {owner.pid}"), claimed(folder):
        pytest.fail("two processes have the claim")
    owner.kill()
    owner.wait()
    with pytest.raises(KeyboardInterrupt), claimed(folder):
        assert os.listdir(folder) == [CLAIM]
        raise KeyboardInterrupt
    assert os.listdir(folder.parent) == []


def test_a_folder_of_a_dead_owner_is_cleared_and_claimed_again(folder, owner):
    owner.kill()
    owner.wait()
    _publish(folder)
    assert list(read_manifest(folder)["parts"]) == ["part"]


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["another number", "the same number"])
def test_an_owner_on_another_machine_counts_as_alive(folder, pid):
    """Containers that share a folder give their few processes the same small pids."""
    _claim_as(folder, pid=pid)
    with pytest.raises(RuntimeError, match=f"process {pid} on elsewhere"):
        _publish(folder)
    assert os.listdir(folder) == [CLAIM]


def _claim_as(folder, **owner):
    folder.mkdir(parents=True)
    (folder / CLAIM).write_text(json.dumps({"host": "elsewhere", "started": 5, "time": 0, **owner}))


def _at_first(monkeypatch, name, act, answer):
    """At the first call of a function that `publish` uses, do what another process does, then answer."""
    usual = getattr(publish, name)

    def at_first(*given):
        monkeypatch.setattr(publish, name, usual)
        act()
        return answer(usual, *given)

    monkeypatch.setattr(publish, name, at_first)


def test_an_owner_may_commit_while_its_claim_is_read(folder, monkeypatch):
    def commit():
        (folder / MANIFEST).write_text('{"format": 1, "parts": {}}')
        (folder / CLAIM).unlink()

    _claim_as(folder, pid=1)
    _at_first(monkeypatch, "owner_of", commit, lambda usual, *given: usual(*given))
    publish.publish_once(folder, {}, lambda claimed: pytest.fail("made twice"))
    assert is_complete(folder)


def test_a_folder_that_is_removed_while_its_claim_is_read_is_claimed(folder, monkeypatch):
    _claim_as(folder, pid=1)
    _at_first(monkeypatch, "owner_of", lambda: shutil.rmtree(folder), lambda usual, *given: usual(*given))
    _publish(folder)
    assert is_complete(folder)


def test_a_new_claim_is_kept_while_a_dead_one_is_examined(folder, owner, monkeypatch):
    """Two processes find the same dead claim; the other is faster, and lives."""
    other = folder.rename(folder.with_name("other"))

    def replace_claim():
        shutil.rmtree(folder)
        other.rename(folder)

    _claim_as(folder, pid=1)
    _at_first(monkeypatch, "is_held", replace_claim, lambda usual, *given: False)
    with pytest.raises(publish.BeingWritten, match=f"process {owner.pid}"):
        _publish(folder)
    assert sorted(os.listdir(folder)) == [CLAIM, "half"] and os.listdir(folder.parent) == ["published"]


def _publish_nothing(folder):
    with pytest.raises(ValueError), publishing(folder, {}):
        raise ValueError


def _clear_as_abandoned(folder):
    publish.clear_abandoned(folder.parent, json.loads((folder / CLAIM).read_text()))


@pytest.mark.parametrize(
    ("dead", "remove"), [(True, _publish), (True, _clear_as_abandoned), (False, _publish_nothing)]
)
def test_a_folder_is_never_seen_half_removed(folder, owner, monkeypatch, dead, remove):
    """Its claim may be removed first; the rest would then look like files of unknown origin."""
    owner.kill(), owner.wait()
    if not dead:
        shutil.rmtree(folder)
    removed, usual = [], shutil.rmtree
    monkeypatch.setattr(
        shutil, "rmtree", lambda path, *given, **how: removed.append(path) or usual(path, *given, **how)
    )
    remove(folder)
    assert folder not in removed and any(".gone" in path.name for path in removed)


def test_publish_once_removes_what_a_dead_remover_left(folder, owner):
    folder.rename(left := folder.with_name(f".{folder.name}.{owner.pid}@{liveness.host_name()}.gone"))
    publish.publish_once(folder, {}, lambda claimed: None)
    assert left.exists()
    shutil.rmtree(folder)
    owner.kill(), owner.wait()
    publish.publish_once(folder, {}, lambda claimed: None)
    assert os.listdir(folder.parent) == ["published"]


def test_unfinished_folders_of_a_process_known_to_be_dead_are_cleared(tmp_path, published):
    dead, other = (
        {"pid": 1, "host": "elsewhere", "started": 5},
        {"pid": 2, "host": "elsewhere", "started": 5},
    )
    for name, made in {"half": dead, "other": other, "complete": dead}.items():
        (published.parent / name).mkdir()
        (published.parent / name / CLAIM).write_text(json.dumps({**made, "time": 0}))
    (published.parent / "complete" / MANIFEST).touch()
    publish.clear_abandoned(published.parent, {**dead, "status": "running"})
    assert sorted(os.listdir(published.parent)) == ["complete", "other", "published"]
    publish.clear_abandoned(tmp_path / "nowhere", dead)


def test_unfinished_folders_of_dead_processes_of_this_host_are_cleared(folder, owner):
    publish.clear_abandoned(folder.parent)
    assert folder.exists()
    owner.kill(), owner.wait()
    publish.clear_abandoned(folder.parent)
    assert os.listdir(folder.parent) == []


def test_files_without_a_claim_are_not_removed(folder):
    folder.mkdir(parents=True)
    (folder / "thesis").write_text("precious")
    with pytest.raises(RuntimeError, match="unknown origin"):
        _publish(folder)
    assert os.listdir(folder) == ["thesis"]


def test_an_empty_folder_is_claimed(folder):
    folder.mkdir(parents=True)
    _publish(folder)
    assert is_complete(folder)


def test_a_claim_that_was_taken_over_is_not_committed(folder):
    with pytest.raises(RuntimeError, match="taken over"), publishing(folder, {}):
        (folder / CLAIM).write_text(json.dumps({"pid": 1, "host": "elsewhere", "time": 0}))
    assert os.listdir(folder) == [CLAIM]


def _change(part):
    part.write_text("abd")


def _truncate(part):
    part.write_text("ab")


@pytest.mark.parametrize(
    ("damage", "message"), [(_change, "is not what"), (_truncate, "is not what"), (os.unlink, "is missing")]
)
def test_a_damaged_file_is_an_error(published, damage, message):
    damage(published / "inner" / "a")
    with pytest.raises(RuntimeError, match=f"inner/a {message}"):
        read_manifest(published)


def test_sizes_are_compared_without_verification(published):
    _change(published / "inner" / "a")
    read_manifest(published, verify=False)
    _truncate(published / "inner" / "a")
    with pytest.raises(RuntimeError, match="is not what"):
        read_manifest(published, verify=False)


def test_another_format_is_an_error(published):
    manifest = json.loads((published / MANIFEST).read_text())
    (published / MANIFEST).write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(RuntimeError, match="has format 99, this version reads 1"):
        read_manifest(published)


def test_a_living_owner_touches_its_claim(folder, monkeypatch):
    monkeypatch.setattr(claim, "BEAT_SECONDS", 0.01)
    with publishing(folder, {}):
        os.utime(folder / CLAIM, (0, 0))
        until(lambda: (folder / CLAIM).stat().st_mtime > 0)


ELSEWHERE = {"pid": 7, "host": "elsewhere", "started": 5, "time": 0}


def test_a_silent_claim_of_another_host_is_an_error_with_the_command_that_clears_it(folder, clock, caplog):
    folder.mkdir(parents=True)
    (folder / CLAIM).write_text(json.dumps(ELSEWHERE))
    clock.after(40, lambda: os.utime(folder / CLAIM, (9, 9)))
    start = clock.now
    with caplog.at_level("INFO"), pytest.raises(ClaimLost) as lost:
        publish.publish_once(folder, {}, lambda folder: pytest.fail("filled"))
    assert 40 + liveness.LOST_SECONDS <= clock.now - start < 42 + liveness.LOST_SECONDS
    assert str(lost.value) == (
        f"{folder} is being written by process 7 on host elsewhere, which has given no sign of life for 60 "
        "seconds. If that process has ended, remove what it left and start again: "
        f"rm -r {folder}\n(`train --resume` does so for the processes of its run)"
    )
    assert (
        caplog.messages == [f"waiting for another process or thread, which works on {folder}"]
        and folder.exists()
    )


def test_a_claim_of_another_host_that_is_touched_is_waited_for(folder, clock):
    folder.mkdir(parents=True)
    (folder / CLAIM).write_text(json.dumps(ELSEWHERE))
    for seconds in range(10, 200, 10):
        clock.after(seconds, lambda seconds=seconds: os.utime(folder / CLAIM, (seconds, seconds)))
    clock.after(200, lambda: shutil.rmtree(folder))
    publish.publish_once(folder, {}, lambda claimed: None)
    assert is_complete(folder)


def test_a_claim_in_turn_waits_for_a_living_owner(tmp_path):
    """A real process holds the claim for a second, and what it leaves beside it is there afterwards."""
    folder, left = tmp_path / "work.claim", tmp_path / "left"
    source = (
        "import sys, time; from pathlib import Path; from pyserini_ance.storage.publish import claimed\n"
        "with claimed(Path(sys.argv[1])): time.sleep(1); Path(sys.argv[2]).touch()"
    )
    other = subprocess.Popen([sys.executable, "-c", source, str(folder), str(left)])
    while not folder.exists():
        assert other.poll() is None
        time.sleep(0.02)
    assert not left.exists()
    with publish.claimed_in_turn(folder):
        assert left.exists() and folder.exists()
    assert not folder.exists() and other.wait(30) == 0


def test_publish_once_waits_for_a_living_owner(tmp_path, monkeypatch):
    """A real process holds the claim for a second and commits; the second caller fills nothing."""
    folder = tmp_path / "store"
    source = (
        "import sys, time; from pathlib import Path; from pyserini_ance.storage.publish import publish_once\n"
        "def fill(folder): (folder / 'claimed').touch(); time.sleep(1); "
        "(folder / 'part').write_text('other')\n"
        "publish_once(Path(sys.argv[1]), {}, fill)"
    )
    other = subprocess.Popen([sys.executable, "-c", source, str(folder)])
    while not (folder / "claimed").exists():
        assert other.poll() is None
        time.sleep(0.02)
    publish.publish_once(folder, {}, lambda folder: pytest.fail("filled twice"))
    assert other.wait(30) == 0
    assert (folder / "part").read_text() == "other" and publish.read_manifest(folder)


def test_publish_once_waits_for_another_thread(folder, monkeypatch):
    """The second thread looks while the first one fills the folder, and fills nothing itself."""
    waiting = []
    monkeypatch.setattr(publish._Wait, "__call__", lambda self: waiting.append(self))
    with ThreadPoolExecutor() as threads:

        def fill(claimed):
            second = threads.submit(publish.publish_once, folder, {}, lambda _: pytest.fail("filled twice"))
            until(lambda: waiting or second.done())
            (claimed / "part").write_text("first")
            seconds.append(second)

        seconds: list = []
        publish.publish_once(folder, {}, fill)
        seconds[0].result()
    assert waiting and read_manifest(folder)["parts"].keys() == {"part"}
    assert os.listdir(folder.parent) == ["published"]


def test_a_claim_of_another_thread_is_held_and_not_abandoned(folder):
    with claimed(folder):
        with pytest.raises(BeingWritten, match=f"by process {os.getpid()}"), claimed(folder):
            pytest.fail("two threads have the claim")
        publish.clear_abandoned(folder.parent, liveness.this_process())
        assert os.listdir(folder) == [CLAIM]
    assert os.listdir(folder.parent) == []


def test_a_claim_that_this_process_could_not_remove_is_replaced(folder, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(publish, "_remove", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError), claimed(folder):
            pass
    assert os.listdir(folder) == [CLAIM]
    _publish(folder)
    assert list(read_manifest(folder)["parts"]) == ["part"]
