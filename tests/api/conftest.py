"""A run, a collection and mined negatives by the Python API, on a small collection with a random model."""

from collections.abc import Callable

import pytest
from helpers.stages import ANN, make_stage

import pyserini_ance as pa

STAGE = make_stage(ANN, refresh={"every_steps": 2}, evaluate={"every_steps": 4, "measure": "RR@10"})


class Recorder(pa.TrainerCallback):
    def __init__(self):
        self.calls: list[tuple] = []

    def on_step_end(self, stage, step, losses, metrics):
        self.calls.append(("step", stage, step, sorted(losses)))

    def on_refresh(self, stage, step, generation):
        self.calls.append(("refresh", stage, step, generation.step))

    def on_dev_measure(self, stage, step, measure, value):
        self.calls.append(("dev", stage, step, measure))


@pytest.fixture(scope="session")
def recipe(small_recipe) -> pa.Recipe:
    return small_recipe({"ance": STAGE})


@pytest.fixture(scope="session")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def run(recipe, recorder, tmp_path_factory) -> pa.Run:
    return pa.train(recipe, tmp_path_factory.mktemp("runs") / "small", callbacks=[recorder])


@pytest.fixture(scope="session")
def collection(recipe) -> pa.Collection:
    return pa.load_collection(recipe.data.model_dump(mode="json"), cache=recipe.cache)


@pytest.fixture(scope="session")
def untrained(run) -> pa.Encoder:
    return pa.load_encoder(run.directory / "checkpoints" / "initial-00000000" / "encoder")


@pytest.fixture(scope="session")
def mine(untrained, recipe, collection) -> Callable[..., pa.MinedNegatives]:
    """Mine with the untrained encoder: `mine(source, filters, num_negatives=3, ...)`."""

    def made(source=ANN, *arguments, **more) -> pa.MinedNegatives:
        settings = {"encoding": {"precision": "fp32"}, "cache": recipe.cache, **more}
        return pa.mine(untrained, settings.pop("collection", collection), source, *arguments, **settings)

    return made


@pytest.fixture(scope="session")
def mined(mine) -> pa.MinedNegatives:
    """Negatives by the untrained encoder, as the refresh before the first step mines them."""
    return mine(num_negatives=3)
