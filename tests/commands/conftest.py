import pytest


@pytest.fixture
def runs(base, tmp_path) -> list[str]:
    """Two, in the folders `one` and `two`."""
    from helpers.finished_run import finished

    return [
        str(finished(tmp_path / name, base, {"only": 0.5}, name=f"set/{name}")) for name in ("one", "two")
    ]
