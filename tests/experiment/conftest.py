from collections.abc import Callable
from pathlib import Path

import pytest
from experiment.servant import Servant


@pytest.fixture(scope="session")
def servant():
    """One for all whole runs: it takes seconds to import everything."""
    with Servant() as servant:
        yield servant


@pytest.fixture(scope="module")
def train(recipe, servant) -> Callable[..., dict]:
    """Run `train RECIPE --output FOLDER ...`, of the file's own `recipe`, in a process; its exit code and stderr."""

    def run(folder: Path, *flags: str, **trouble) -> dict:
        return servant.run("train", [str(recipe), "--output", str(folder), *flags], **trouble)

    return run


@pytest.fixture(scope="module")
def undisturbed(train, tmp_path_factory) -> Path:
    """The run directory of the file's `recipe`, left in peace."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = train(folder)
    assert done["code"] == 0, done["stderr"]
    return folder
