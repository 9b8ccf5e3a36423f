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
    """Run `train RECIPE --output FOLDER ...` in a process; `code=` is the end that it must come to."""
    given = (str(recipe), "--output")
    return lambda folder, *flags, **more: server.run("train", [*given, str(folder), *flags], **more)


@pytest.fixture(scope="module")
def undisturbed(train, tmp_path_factory) -> Path:
    """The run directory of the module's `recipe`, trained without interruption."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(folder)
    return folder
