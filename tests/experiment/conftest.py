import pytest
from experiment.servant import Servant


@pytest.fixture(scope="session")
def servant():
    """One for all whole runs: it takes seconds to import everything."""
    with Servant() as servant:
        yield servant
