import pytest

from pyserini_ance.recipe.init_from import EXPECTED, InitFrom
from pyserini_ance.recipe.load import dump, load

TWO = """
extends: base
stages:
  only: {init_from: {run: runs/x, stage: y}}
  then:
    steps: 1
    batch_queries: 1
    optimizer: {learning_rate: 1}
    terms: {query: {in_batch_negatives: true}}
    init_from: {stage: only}
"""


@pytest.fixture
def two(base, write):
    return write("two", TWO)


def start(path, *overrides: str, stage: str = "then"):
    return load(path, *overrides).recipe.stages[stage].init_from


@pytest.mark.parametrize(
    "value",
    [
        "initial",
        "previous",
        "{stage: only}",
        "{run: a}",
        "{run: a, stage: b}",
        "{recipe: demo/ance}",
        "{folder: a}",
    ],
)
def test_every_start_comes_back_from_the_dump(two, write, value):
    recipe = load(two, f"stages.then.init_from={value}").recipe
    assert load(write("dumped", dump(recipe))).recipe == recipe


def test_another_checkpoint_replaces_init_from_and_a_key_changes_it(two, write):
    assert start(two, "stages.only.init_from={folder: b}", stage="only") == InitFrom(folder="b")
    assert start(
        write("three", "extends: two\nstages: {only: {init_from: {recipe: c}}}"), stage="only"
    ) == InitFrom(recipe="c")
    assert start(two, "stages.only.init_from.stage=z", stage="only") == InitFrom(run="runs/x", stage="z")


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        ("last", "", f"{EXPECTED}, got 'last'"),
        ("3", "", f"{EXPECTED}, got 3"),
        ("[only]", "", f"{EXPECTED}, got ['only']"),
        ("{}", "", EXPECTED),
        (
            "{runs: a}",
            ".runs",
            "unknown key 'runs' (did you mean 'run'?); keys here: allow_changes, folder, recipe, run, "
            "stage, got 'a'",
        ),
        ("{run: a, folder: b}", "", "run and folder are two different checkpoints; keep one"),
        ("{folder: a, stage: b}", "", "a folder holds one encoder; remove `stage`, or pass a `run`"),
        (
            "{stage: onyl}",
            ".stage",
            "no stage 'onyl' before 'then' (did you mean 'only'?); earlier stages: only, got 'onyl'",
        ),
        ("{stage: then}", ".stage", "no stage 'then' before 'then'; earlier stages: only, got 'then'"),
    ],
)
def test_anything_else_is_named_once_at_its_key(two, value, key, message):
    with pytest.raises(ValueError) as error:
        load(two, f"stages.then.init_from={value}")
    _, said = str(error.value).splitlines()
    assert said == f"  stages.then.init_from{key}: {message}"


def test_a_schedule_goes_on_only_from_the_last_step(two):
    """The result of a stage with `keep_best` may be a step that its schedule has long left."""
    first, offset = "stages.only.evaluate", "stages.then.lr_schedule={offset_steps: 5, total_steps: 50}"
    for evaluate in ("{every_steps: 5, keep_best: false}", "null"):
        load(two, f"{first}={evaluate}", offset)
    load(two, f"{first}={{every_steps: 5}}")
    with pytest.raises(
        ValueError, match=r"then\.lr_schedule\.offset_steps is 5, but with stages\.only\.evaluate\.keep_best"
    ):
        load(two, f"{first}={{every_steps: 5}}", offset)


@pytest.mark.parametrize("folder", ["demo", "medquad", "nfcorpus", "msmarco-passage"])
@pytest.mark.parametrize("method", ["ance-cyclic", "ance-standard"])
def test_every_episode_ends_with_its_last_step(folder, method):
    stages = load(f"{folder}/{method}").recipe.stages.values()
    assert not any(stage.evaluate and stage.evaluate.keep_best for stage in stages)
    offsets = [stage.lr_schedule.offset_steps for stage in stages]
    each = next(iter(stages)).steps
    assert offsets == [each * number if method == "ance-standard" else 0 for number in range(5)]


@pytest.mark.parametrize("value", ["initial", "{run: a}", "{folder: a}"])
def test_keep_optimizer_needs_a_previous_optimizer(two, value):
    keep = "stages.then.keep_optimizer=true"
    load(two, keep)
    with pytest.raises(ValueError, match="makes no sense with init_from: .*; use init_from: previous"):
        load(two, keep, f"stages.then.init_from={value}")


def test_stages_with_the_same_initial_checkpoint_share_a_row(two):
    def starts(*overrides: str) -> dict:
        return load(two, *overrides).recipe.external_starts

    assert (
        starts()
        == starts("stages.then.init_from={run: runs/x, stage: y}")
        == {"start-only": InitFrom(run="runs/x", stage="y")}
    )
    assert starts("stages.then.init_from={run: z}") == {**starts(), "start-then": InitFrom(run="z")}


def test_a_stage_is_not_called_like_a_start(base, write):
    with pytest.raises(
        ValueError, match=r"stage name 'start-a'.* none of bm25, hybrid, initial, untrained, start-..."
    ):
        load(write("named", TWO.replace("  then:", "  start-a:")))
