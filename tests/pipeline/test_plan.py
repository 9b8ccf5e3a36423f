import pytest
from helpers.base_recipe import recipe_of_stages

from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.pipeline import plan as plan_module
from pyserini_ance.pipeline.plan import (
    documents_encoded,
    evaluation_encodings,
    evaluation_steps,
    plan,
    refresh_steps,
)
from pyserini_ance.recipe.evaluation_settings import FinalEvaluation
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.stage import Stage

STAGE = {
    "steps": 20,
    "batch_queries": 2,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": 5}]}},
}
STATIC = {**STAGE, "terms": {"query": {"negatives": [{"kind": "random"}]}}}
READY = {"mode": "async", "adopt": "when_ready"}


@pytest.mark.parametrize(
    ("stage", "row"),
    [
        (STATIC, ["sync", "0", "0", "0"]),
        ({**STAGE, "refresh": {"every_steps": 5}}, ["sync", "4", "0", "120"]),
        ({**STAGE, "refresh": {"every_steps": 5, "mode": "async"}}, ["async, +5", "3", "0", "90"]),
        (
            {**STAGE, "refresh": {"every_steps": 5, **READY}, "evaluate": {"every_steps": 10}},
            ["async, when_ready", "4", "3", "150"],
        ),
        ({**STATIC, "evaluate": {"every_steps": 10, **READY}}, ["async, when_ready", "0", "3", "90"]),
    ],
)
def test_a_stage_says_who_makes_what_and_how_much(small_recipe, stage, row):
    assert cells(plan(small_recipe({"b": stage})), "b")[5:-1] == row


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


def test_documents_in_passages_are_counted_as_such(small_recipe):
    for empty, said in ((False, "30 in 81 passages of"), (True, "30 in 90 passages, 9 of them empty, of")):
        encoder = small_recipe({"b": STATIC}).encoder.model_dump(mode="json")
        encoder["tokenization"]["document"].update(length_tokens=10, passages=3, pad_passages=empty)
        assert f"documents: {said}" in plan(small_recipe({"b": STATIC}, encoder=encoder))


@pytest.mark.parametrize(("trainable", "towers"), [("both", 1), ("query_tower", 2)])
def test_one_line_of_sizes(small_recipe, monkeypatch, trainable, towers):
    """In units of a vector."""
    recipe = small_recipe({"b": {**STATIC, "trainable": trainable}})
    encoder = initial_encoder(recipe.encoder, recipe.seed)
    monkeypatch.setattr(plan_module, "GIB", 4 * encoder.dimension)
    weights = towers * sum(p.numel() for p in encoder.towers.parameters()) / encoder.dimension
    sizes = f"a checkpoint {weights:.2f} GiB, its moments while its stage runs {2 * weights:.2f} GiB"
    assert f"sizes: vectors 30.00 GiB, {sizes}" in plan(recipe).splitlines()


@pytest.mark.parametrize(("sampling", "epochs"), [("proportional", "2.0"), ("equal", "dev 4.0, train 1.3")])
def test_splits_that_are_drawn_evenly_have_epochs_of_their_own(small_recipe, sampling, epochs):
    text = plan(small_recipe({"b": STATIC}, train_split={"splits": ["dev", "train"], "sampling": sampling}))
    assert (
        cells(text, "b")[3:5] == ["40", epochs] and "queries: dev+train 20, dev 5, test 5, train 15" in text
    )


def cells(text: str, stage: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {stage} ")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_stage_says_how_its_learning_rate_changes(small_recipe):
    lamb = {"kind": "lamb", "learning_rate": 1e-6}
    stages = {
        "a": STATIC,
        "b": {
            **STATIC,
            "optimizer": lamb,
            "lr_schedule": {"kind": "cosine", "warmup_steps": 5000},
            "steps": 20000,
        },
        "c": {
            **STATIC,
            "optimizer": lamb,
            "lr_schedule": {"warmup_steps": 5000, "total_steps": 1000000, "offset_steps": 600000},
        },
        "d": {**STATIC, "optimizer": {"learning_rate": 0.5}, "lr_schedule": {"kind": "constant"}},
    }
    text = plan(small_recipe(stages))
    assert [cells(text, name)[-1] for name in stages] == [
        "adamw 0.001, linear to 0 at 20",
        "lamb 1e-06, warm-up 5,000, cosine to 0 at 20,000",
        "lamb 1e-06, warm-up 5,000, linear to 0 at 1,000,000, from 600,000 on",
        "adamw 0.5, constant",
    ]


def stage(steps: int, refresh: int | None = None, evaluate: int | None = None, **dev) -> Stage:
    settings = {"steps": steps, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}}
    negatives = [{"kind": "ann" if refresh else "random"}]
    return Stage.model_validate(
        {
            **settings,
            "terms": {"query": {"negatives": negatives}},
            "refresh": refresh and {"every_steps": refresh},
            "evaluate": evaluate and {"every_steps": evaluate, **dev},
        }
    )


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


def test_the_final_evaluation_encodes_once_per_document_tower_of_its_rows():
    def encodings(*rows: str, **changes) -> int:
        stages = [stage(10), stage(10).model_copy(update=changes)]
        made = recipe_of_stages(*stages).model_copy(update={"final_evaluation": FinalEvaluation(rows=rows)})
        return evaluation_encodings(made)

    assert encodings("untrained", "start", "stages") == 3
    assert encodings("stages") == 2 and encodings() == 1
    only_queries = {"trainable": "query_tower"}
    assert encodings("untrained", "stages", **only_queries) == 2 and encodings(**only_queries) == 1
    assert encodings("untrained", "stages", init_from="initial", **only_queries) == 2
    warm = InitFrom(recipe="demo/warmup")
    assert encodings("untrained", "start", "stages", init_from=warm) == 4
    assert encodings("start", init_from=warm, **only_queries) == 1
