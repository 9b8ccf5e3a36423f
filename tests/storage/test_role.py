"""Roles: one process has each; the file beside the lock says what it does, and how it ended."""

import json
import os

import pytest
from helpers.elsewhere import elsewhere

from pyserini_ance.storage.locks import LockHeld
from pyserini_ance.storage.role import Role

WHO = {"status": "running", "where": "x", "pid": 1, "host": "h"}


@pytest.fixture
def role(tmp_path) -> Role:
    return Role(tmp_path / "run" / "refresher.json")


@pytest.fixture
def other(role):
    """Another process that has the role."""
    role.path.parent.mkdir()
    imports = "from pyserini_ance.storage.role import Role"
    with elsewhere(imports, "Role(Path(sys.argv[1])).held('encode')", role.path) as process:
        yield process


def test_a_role_is_refused_while_another_process_has_it(role, other, monkeypatch):
    monkeypatch.setattr("pyserini_ance.storage.role.PATIENCE_SECONDS", 0.1)
    host = role.read()["host"]
    assert role.is_held and role.describe() == f"process {other.pid} on host {host}, at work on encode"
    for attempt in (role.check_free, lambda: role.held().__enter__()):
        with pytest.raises(LockHeld, match=rf"run \(refresher.json\) is in use by process {other.pid} on "):
            attempt()
    other.kill(), other.wait()
    assert not role.is_held and role.read()["status"] == "running"
    assert role.describe().endswith(", died at encode")
    role.check_free()
    with role.held("search"):
        assert role.read()["pid"] == os.getpid() and role.read()["where"] == "search"
    assert os.listdir(role.path.parent) == ["refresher.json"]


class NewRecipe(ValueError):
    needs_new_recipe = True


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, {"status": "finished", "where": "step 2"}),
        (KeyboardInterrupt(), {"status": "stopped", "where": "step 2", "reason": "KeyboardInterrupt"}),
        (ValueError("no data"), {"status": "failed", "where": "step 2", "reason": "no data"}),
        (NewRecipe("k"), {"status": "failed", "where": "step 2", "reason": "k", "needs_new_recipe": True}),
    ],
)
def test_the_end_is_recorded(tmp_path, error, expected):
    role = Role(tmp_path / "state.json", layout=2)
    try:
        with role.held("step 1"):
            role.mark("running", "step 2")
            if error:
                raise error
    except BaseException as raised:
        assert raised is error
    found = role.read()
    assert {key: found.get(key) for key in expected} == expected and found["time"] >= found["since"]
    assert not role.is_held


def test_an_end_that_the_block_records_stays_and_without_work_nothing_is_recorded(tmp_path):
    role = Role(tmp_path / "state.json")
    assert role.read() is None and role.describe() == "no process"
    with pytest.raises(ValueError, match="later"), role.held():
        raise ValueError("later")
    assert role.read() is None
    with pytest.raises(ValueError, match="later"), role.held("step 1"):
        role.mark("failed", "step 1", reason="first")
        raise ValueError("later")
    assert role.read()["reason"] == "first" and role.describe().endswith(", failed at step 1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "state.json was damaged"),
        (json.dumps({**WHO, "layout": 3}), r"state.json has layout 3, this version reads layout 4.*6a05e4e"),
        (json.dumps(WHO), "has layout None, this version reads layout 4"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, message):
    role = Role(tmp_path / "state.json", layout=4)
    role.path.write_text(content)
    with pytest.raises(RuntimeError, match=message) as refused:
        role.read()
    assert "\n" not in str(refused.value)
