import pytest

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.start import EXPECTED, Start

TWO = """
extends: base
stages:
  only: {start: {run: runs/x, stage: y}}
  then: {steps: 1, batch_queries: 1, optimizer: {learning_rate: 1}, terms: {query: {pool: step}}, start: {stage: only}}
"""


@pytest.fixture
def two(base, write):
    return write("two", TWO)


def start(path, *overrides: str, stage: str = "then"):
    return load(path, *overrides).recipe.stages[stage].start


@pytest.mark.parametrize("value", ["initial", "previous", "{stage: only}", "{run: a}", "{run: a, stage: b}", "{recipe: demo/ance}", "{folder: a}"])
def test_every_start_comes_back_from_the_dump(two, write, value):
    recipe = load(two, f"stages.then.start={value}").recipe
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_another_place_replaces_the_whole_start_and_a_key_of_it_changes_it(two, write):
    assert start(two, "stages.only.start={folder: b}", stage="only") == Start(folder="b")
    assert start(write("three", "extends: two\nstages: {only: {start: {recipe: c}}}"), stage="only") == Start(recipe="c")
    assert start(two, "stages.only.start.stage=z", stage="only") == Start(run="runs/x", stage="z")


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        ("last", "", f"{EXPECTED}, got 'last'"),
        ("3", "", f"{EXPECTED}, got 3"),
        ("[only]", "", f"{EXPECTED}, got ['only']"),
        ("{}", "", EXPECTED),
        ("{runs: a}", ".runs", "unknown key 'runs' (did you mean 'run'?); keys here: changes, folder, recipe, run, stage, got 'a'"),
        ("{run: a, folder: b}", "", "run and folder are two places; name one"),
        ("{folder: a, stage: b}", "", "a folder holds one encoder; leave out `stage`, or name a `run`"),
        ("{stage: onyl}", ".stage", "no stage 'onyl' before 'then' (did you mean 'only'?); earlier stages: only, got 'onyl'"),
        ("{stage: then}", ".stage", "no stage 'then' before 'then'; earlier stages: only, got 'then'"),
    ],
)
def test_anything_else_is_named_once_at_its_key(two, value, key, message):
    with pytest.raises(ValueError) as error:
        load(two, f"stages.then.start={value}")
    _, said = str(error.value).splitlines()
    assert said == f"  stages.then.start{key}: {message} (set in command line)"


def test_only_what_has_moments_keeps_its_optimizer(two):
    load(two, "stages.then.keep_optimizer=true")
    for value, said in (("initial", "initial"), ("{run: a}", "weights alone"), ("{folder: a}", "weights alone")):
        with pytest.raises(ValueError, match=f"makes no sense with start: {said}; use start: previous"):
            load(two, "stages.then.keep_optimizer=true", f"stages.then.start={value}")


def test_stages_that_start_from_the_same_place_share_a_row_of_the_first_name(two):
    def starts(*overrides: str) -> dict:
        return load(two, *overrides).recipe.outside_starts

    assert starts() == starts("stages.then.start={run: runs/x, stage: y}") == {"start-only": Start(run="runs/x", stage="y")}
    assert starts("stages.then.start={run: z}") == {**starts(), "start-then": Start(run="z")}


def test_a_stage_is_not_called_like_a_start(base, write):
    with pytest.raises(ValueError, match="stage name 'start-a'.* none of bm25, initial, untrained, start-..."):
        load(write("named", TWO.replace("  then:", "  start-a:")))
