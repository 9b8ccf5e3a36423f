from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.processes import CommandServer


@pytest.fixture(scope="session")
def server():
    """One server for all whole runs: importing everything takes seconds."""
    with CommandServer() as server:
        yield server


@pytest.fixture(scope="module")
def train(recipe, server) -> Callable[..., dict]:
    """Run `train RECIPE --output FOLDER ...` in a process; returns its exit code and stderr."""
    given = (str(recipe), "--output")
    return lambda folder, *flags, **fault: server.run("train", [*given, str(folder), *flags], **fault)


@pytest.fixture(scope="module")
def undisturbed(train, tmp_path_factory) -> Path:
    """The run directory of the module's `recipe`, trained without interruption."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = train(folder)
    assert done["code"] == 0, done["stderr"]
    return folder
