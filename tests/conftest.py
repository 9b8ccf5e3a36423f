"""Fixtures that several rooms share: real data beside the repository, and small random models."""

import logging
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from helpers import small_set
from helpers.fake_clock import Clock
from helpers.forked_program import forked_programs
from helpers.language_model import KEY
from helpers.processes import Processes

# One thread, here and in child processes: matrices are tiny, and on a busy machine threads that wait for one
# another cost some 8 ms an operation.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# A recipe that loads; nobody reads its data.
BASE = """
data: {kind: beir, folder: some/where}
encoder: {model: some-model}
stages:
  only:
    steps: 10
    batch_queries: 4
    optimizer: {learning_rate: 1e-3}
    terms:
      query: {negatives: [{kind: random}, {kind: bm25, top_k: 50}], loss: {kind: nll, scale: 2}}
"""

# Fixtures that start processes: our commands or Pyserini from end to end, or the processes of one torchrun.
PROCESS_FIXTURES = {"server", "in_java", "child", "run_processes", "forked_python"}
# Fixtures that make models, train, or read real data: seconds rather than milliseconds.
SLOW_FIXTURES = {"shared_data", "shared_papers", "small_recipe"}
SLOW_FIXTURES |= {"tiny_bert", "tiny_cross_encoder", "tiny_reader", "tiny_roberta"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need: `long` or `fast`."""
    for item in items:
        needs = set(getattr(item, "fixturenames", ()))
        if needs & PROCESS_FIXTURES:
            item.add_marker(pytest.mark.long)
        elif not needs & (PROCESS_FIXTURES | SLOW_FIXTURES) and not item.get_closest_marker("long"):
            item.add_marker(pytest.mark.fast)


@pytest.fixture(scope="session")
def device() -> str:
    """What `cuda` tests compare with the CPU; PYSERINI_ANCE_TEST_DEVICE=cpu tries the tests' own code."""
    import torch

    named = os.environ.get("PYSERINI_ANCE_TEST_DEVICE", "cuda")
    if named != "cpu" and not torch.cuda.is_available():
        pytest.skip("no GPU; PYSERINI_ANCE_TEST_DEVICE=cpu runs this test on the CPU")
    return named


@pytest.fixture(autouse=True)
def quiet_package() -> Iterator[None]:
    """Commands that a test calls set the log levels of the package and its rooms for the whole process."""
    yield
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("pyserini_ance") and getattr(logger, "level", logging.NOTSET):
            logger.setLevel(logging.NOTSET)


@pytest.fixture(params=["plain", "amx", "zen3", "zen4", "zen5"])
def processor(request, monkeypatch) -> str:
    """The package chooses as on each of hardware.py's PROCESSORS."""
    monkeypatch.setenv("PYSERINI_ANCE_PROCESSOR", request.param)
    return request.param


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real collections that are kept beside the repository, not in it."""
    return _shared("data", "no real data")


@pytest.fixture(scope="session")
def shared_papers() -> Path:
    """The papers' texts, kept there too."""
    return _shared("papers", "no papers' texts")


def _shared(name: str, without: str) -> Path:
    folder = Path(__file__).parents[2] / "shared" / name
    if not folder.is_dir():
        pytest.skip(f"{without} in {folder}")
    return folder


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The time of all that wait for another process, in this one; a child of it would stand still."""
    turned = Clock()
    for module in ("trainer.executors", "pipeline.refresher_process"):
        monkeypatch.setattr(f"pyserini_ance.{module}.time", turned)
    return turned


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory) -> Path:
    return small_set.make_tiny_bert(tmp_path_factory.mktemp("tiny_bert"))


@pytest.fixture(scope="session")
def tiny_cross_encoder(tiny_bert, tmp_path_factory) -> Path:
    return small_set.make_tiny_cross_encoder(tmp_path_factory.mktemp("tiny_cross_encoder"), tiny_bert)


@pytest.fixture(scope="session")
def tiny_reader(tiny_bert, tmp_path_factory) -> str:
    return str(small_set.make_tiny_reader(tmp_path_factory.mktemp("tiny_reader"), tiny_bert))


@pytest.fixture(scope="session")
def tiny_roberta(tmp_path_factory) -> Path:
    return small_set.make_tiny_roberta(tmp_path_factory.mktemp("tiny_roberta"))


@pytest.fixture
def base(tmp_path) -> Path:
    """A small recipe in a file, to load and to make run directories of."""
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path / "base.yaml"


@pytest.fixture
def runs(base, tmp_path) -> list[str]:
    """Two finished runs, in the folders `one` and `two`."""
    from helpers.finished_run import finished

    rows = {"only": 0.5}
    return [str(finished(tmp_path / name, base, rows, name=f"set/{name}")) for name in ("one", "two")]


@pytest.fixture(scope="session")
def small_recipe(tiny_bert, tmp_path_factory):
    """Make recipes, of the stages given, over the small collection with `tiny_bert`."""
    from pyserini_ance.recipe.models import Recipe

    collection = small_set.make_small_collection(tmp_path_factory.mktemp("small_collection"))

    settings = partial(small_set.small_settings, collection, tiny_bert)
    return lambda stages, **more: Recipe.model_validate({**settings(stages), **more})


@pytest.fixture
def without_dropout(small_recipe):
    """Make the same recipes, of encoders without dropout."""

    def make(stages: dict, **more):
        recipe = small_recipe(stages, **more)
        return recipe.model_copy(update={"encoder": recipe.encoder.model_copy(update={"dropout": 0.0})})

    return make


@pytest.fixture(scope="session")
def run_processes() -> Processes:
    """`run_processes(size, function, *arguments)`: see `Processes`."""
    return Processes()


@pytest.fixture(scope="session")
def forked_python(tmp_path_factory) -> Iterator[list[str]]:
    """In place of `sys.executable`, where no new interpreter is tested: see helpers/forked_program.py."""
    with forked_programs(tmp_path_factory.mktemp("programs")) as command:
        yield command


@pytest.fixture
def quick_language_model(monkeypatch) -> None:
    """Requests are repeated at once, with the key that the stub server knows."""
    from pyserini_ance import llm

    monkeypatch.setattr(llm, "PAUSE_SECONDS", 0.001)
    monkeypatch.setenv(llm.KEY, KEY)
