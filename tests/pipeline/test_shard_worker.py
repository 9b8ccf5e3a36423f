"""A refresher and workers that encode the corpus together, in processes of their own, which are killed."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.run_outcome import outcome
from pipeline.test_background import PATIENT, STAGE, Runs
from vectors.test_shard_tasks import KEY, TOKENS_PER_BATCH, StubEncoder

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.pipeline.shard_worker import ShardWorker, SharedEncoding, encode_with_workers
from pyserini_ance.recipe.load import dump
from pyserini_ance.runs.rundir import RunDir

IN_SHARDS = {**PATIENT, "shards": 3}


@pytest.fixture
def runs(server, small_recipe, tmp_path) -> Runs:
    return Runs(server, small_recipe, tmp_path)


@pytest.fixture(scope="module")
def alone(server, small_recipe, tmp_path_factory) -> Path:
    """A run whose refresher encodes all shards."""
    folder = tmp_path_factory.mktemp("alone")
    runs = Runs(server, small_recipe, folder)
    for ended in runs.both(runs.recipe(IN_SHARDS), folder / "run"):
        assert ended["code"] == 0, ended["stderr"]
    return folder / "run"


def test_workers_that_are_killed_change_nothing(runs, alone, tmp_path):
    """All shards are made by workers: one dies in its fifth, one stays."""
    recipe, run = runs.recipe(IN_SHARDS), tmp_path / "run"
    refresher = runs.start("refresh", recipe, run, fault="leave_shards_to_workers")
    mortal = runs.start("refresh", recipe, run, "--worker", fault="kill_in_shard", step=5)
    trainer = runs.start("train", recipe, run)
    assert runs.server.wait(mortal)["code"] == -9
    worker = runs.start("refresh", recipe, run, "--worker")
    for process in (trainer, refresher, worker):
        ended = runs.server.wait(process)
        assert ended["code"] == 0, ended["stderr"]
    assert "the worker exits: the run has finished" in ended["stdout"]
    assert "encoded shard 2/3 of the documents" in ended["stderr"]
    assert outcome(run) == outcome(alone)


def test_a_refresher_that_is_killed_is_followed_by_another(runs, alone, tmp_path):
    """It dies with a shard of the second checkpoint; the worker and the next refresher make the rest."""
    recipe, run = runs.recipe(IN_SHARDS), tmp_path / "run"
    refresher = runs.start("refresh", recipe, run, fault="kill_in_shard", step=4)
    trainer = runs.start("train", recipe, run)
    assert runs.server.wait(refresher)["code"] == -9
    assert json.loads((run / "encoding.json").read_text())["shards"] == 3
    processes = [runs.start("refresh", recipe, run, *flags) for flags in ((), ("--worker",))]
    for process in (trainer, *processes):
        ended = runs.server.wait(process)
        assert ended["code"] == 0, ended["stderr"]
    assert outcome(run) == outcome(alone)


def encode(world: World, folder: Path, shards: int) -> np.ndarray:
    run = RunDir(folder)
    run.folder.mkdir(exist_ok=True)
    tokens = TokenStore.of_lists([[1] * (i % 5) for i in range(50)], Specials((), (), 0))
    how = "document", "fp32", TOKENS_PER_BATCH, "documents", world
    model = run.checkpoints / "a-00000000" / "encoder"
    return encode_with_workers(run, shards, model, folder / "vectors", KEY, StubEncoder(), tokens, *how)[:]


def test_the_processes_of_a_refresher_share_the_shards(run_processes, tmp_path):
    expected = encode(World(), tmp_path / "one", 2)
    for found in run_processes(2, encode, tmp_path / "two", 5):
        assert (found == expected).all()
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["vectors"]
    assert sorted(path.name for path in (tmp_path / "two/vectors").iterdir()) == ["0-of-2", "1-of-2"]


def test_a_worker_serves_an_encoding_once_and_passes_over_one_whose_checkpoint_is_gone(
    tmp_path, small_recipe
):
    run = RunDir(tmp_path)
    run.create(dump(small_recipe({"a": STAGE})))
    worker = ShardWorker(run, None, None, World())
    assert worker.find() is None
    shared = SharedEncoding("a-00000000", "w", "fp32", 64, 3)
    run.shared_encoding.write_text(json.dumps(vars(shared)))
    assert worker.find() == shared
    worker.serve(shared)
    assert worker.find() is None
    run.shared_encoding.unlink()
    assert worker.find() is None
    run.shared_encoding.write_text(json.dumps(vars(shared)))
    assert worker.find() == shared
