import pytest
from helpers.stages import RANDOM, make_stage

from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.pipeline import plan as plan_module
from pyserini_ance.pipeline.plan import documents_encoded, evaluation_steps, plan, refresh_steps
from pyserini_ance.recipe.stage import Stage

STAGE = make_stage({"kind": "ann", "top_k": 5}, steps=20, batch_queries=2)
STATIC = make_stage(RANDOM, steps=20, batch_queries=2)
READY = {"mode": "async", "adopt": "when_ready"}


@pytest.mark.parametrize(
    ("stage", "row"),
    [
        (STATIC, ["0", "0", "0"]),
        ({**STAGE, "refresh": {"every_steps": 5}}, ["4", "0", "120"]),
        ({**STAGE, "refresh": {"every_steps": 5, "mode": "async"}}, ["3", "0", "90"]),
        (
            {**STAGE, "refresh": {"every_steps": 5, **READY}, "evaluate": {"every_steps": 10}},
            ["4", "3", "150"],
        ),
        ({**STATIC, "evaluate": {"every_steps": 10, **READY}}, ["0", "3", "90"]),
    ],
)
def test_a_stage_says_how_much_is_made(small_recipe, stage, row):
    assert cells(plan(small_recipe({"b": stage})), "b")[5:] == row


def test_what_has_no_effect_or_repeats_queries_is_warned_of(small_recipe):
    rare = {**STAGE, "refresh": {"every_steps": 21}, "batch_queries": 16}
    assert plan(small_recipe({"b": rare})).splitlines()[-3:] == [
        "",
        "WARNING: stages.b.refresh.every_steps is 21, but the stage has 20 steps: its negatives are mined at "
        "its start and never refreshed",
        "WARNING: stages.b.batch_queries is 16, but there are 15 training queries: a batch has the same "
        "query more than once",
    ]
    limits = {**STAGE, "refresh": {"every_steps": 20}, "batch_queries": 15}
    assert "WARNING" not in plan(small_recipe({"b": limits}))


@pytest.mark.parametrize(("trainable", "towers"), [("both", 1), ("query_tower", 2)])
def test_one_line_of_sizes(small_recipe, monkeypatch, trainable, towers):
    """In units of a vector."""
    recipe = small_recipe({"b": {**STATIC, "trainable": trainable}})
    encoder = initial_encoder(recipe.encoder, recipe.seed)
    monkeypatch.setattr(plan_module, "GIB", 4 * encoder.dimension)
    weights = towers * sum(p.numel() for p in encoder.towers.parameters()) / encoder.dimension
    sizes = f"a checkpoint {weights:.2f} GiB, its moments while its stage runs {2 * weights:.2f} GiB"
    assert f"sizes: vectors 30.00 GiB, {sizes}" in plan(recipe).splitlines()


def cells(text: str, stage: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {stage} ")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def stage(steps: int, refresh: int | None = None, evaluate: int | None = None, **dev) -> Stage:
    due = {
        "refresh": refresh and {"every_steps": refresh},
        "evaluate": evaluate and {"every_steps": evaluate, **dev},
    }
    return Stage.model_validate(make_stage({"kind": "ann" if refresh else "random"}, steps=steps, **due))


@pytest.mark.parametrize(
    ("made", "refreshes", "evaluations", "encoded"),
    [
        (stage(10), set(), set(), 0),
        (stage(10, refresh=4), {0, 4, 8}, set(), 300),
        (stage(8, refresh=4), {0, 4}, set(), 200),  # nothing is mined after the last step
        (stage(10, evaluate=4), set(), {0, 4, 8, 10}, 400),
        (stage(8, evaluate=4), set(), {0, 4, 8}, 300),
        (stage(3, evaluate=4), set(), {0, 3}, 200),
        (stage(8, refresh=4, evaluate=4), {0, 4}, {0, 4, 8}, 300),  # steps 0 and 4 are encoded once
        # Step 4 finds its sample among the refresh's.
        (stage(8, refresh=4, evaluate=4, sample_documents=50), {0, 4}, {0, 4, 8}, 250),
        (stage(8, evaluate=4, sample_documents=500), set(), {0, 4, 8}, 300),  # a sample of all
        (
            stage(8, refresh=4, evaluate=4).model_copy(update={"trainable": "query_tower"}),
            {0, 4},
            {0, 4, 8},
            100,
        ),  # and never again
    ],
)
def test_steps_at_which_something_happens(made, refreshes, evaluations, encoded):
    assert refresh_steps(made) == refreshes and evaluation_steps(made) == evaluations
    assert documents_encoded(made, 100) == encoded
