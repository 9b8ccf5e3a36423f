import pytest

from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.load import dump, load

TWO = """
extends: base
stages:
  only: {init_from: {folder: runs/x, stage: y}}
  then:
    steps: 1
    batch_queries: 2
    optimizer: {learning_rate: 1}
    terms: {query: {in_batch_negatives: true}}
    init_from: {stage: only}
"""


@pytest.fixture
def two(base, write):
    return write("two", TWO)


def start(path, *overrides: str, stage: str = "then"):
    return load(path, *overrides).stages[stage].init_from


def test_every_start_comes_back_from_the_dump(two, write):
    for value in ("initial", "{stage: only}", "{folder: a, stage: b}", "{recipe: demo/ance}", "{folder: a}"):
        recipe = load(two, f"stages.then.init_from={value}")
        assert load(write("dumped", dump(recipe))) == recipe


def test_another_checkpoint_replaces_init_from_and_a_key_changes_it(two, write):
    assert start(two, "stages.only.init_from={folder: b}", stage="only") == InitFrom(folder="b")
    three = write("three", "extends: two\nstages: {only: {init_from: {recipe: c}}}")
    assert start(three, stage="only") == InitFrom(recipe="c")
    assert start(two, "stages.only.init_from.stage=z", stage="only") == InitFrom(folder="runs/x", stage="z")


def test_stages_with_the_same_initial_checkpoint_share_a_row(two):
    def starts(*overrides: str) -> dict:
        return load(two, *overrides).external_starts

    one = {"start-only": InitFrom(folder="runs/x", stage="y")}
    assert starts() == starts("stages.then.init_from={folder: runs/x, stage: y}") == one
    assert starts("stages.then.init_from={folder: z}") == {**starts(), "start-then": InitFrom(folder="z")}
