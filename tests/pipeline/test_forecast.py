import pytest
from helpers.base_recipe import recipe_of_stages

from pyserini_ance.pipeline.forecast import (
    candidates_kept,
    checkpoints_at_once,
    documents_encoded,
    evaluation_encodings,
    evaluation_steps,
    generations_kept,
    moments_at_once,
    open_at_once,
    refresh_steps,
    times_mined,
    vectors_at_once,
)
from pyserini_ance.recipe.evaluation_settings import FinalEvaluation
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.optimization import Average
from pyserini_ance.recipe.stage import Stage

READY = {"mode": "async", "adopt": "when_ready"}


def stage(
    steps: int,
    refresh: int | None = None,
    evaluate: int | None = None,
    sample: int | None = None,
    **background,
) -> Stage:
    """`background`: how negatives are refreshed, and dev measured where nothing else is said."""
    settings = {"steps": steps, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}}
    negatives = [{"kind": "ann" if refresh else "random"}]
    return Stage.model_validate(
        {
            **settings,
            "terms": {"query": {"negatives": negatives}},
            "refresh": refresh and {"every_steps": refresh, **background},
            "evaluate": evaluate
            and {"every_steps": evaluate, "sample_documents": sample, **({} if refresh else background)},
        }
    )


def after(steps: int) -> dict:
    return {"mode": "async", "adopt": {"after_steps": steps}}


def recipe(*stages: Stage, **keep) -> Recipe:
    return recipe_of_stages(*stages, retention=keep)


def averaging(stage: Stage, **average) -> Stage:
    return stage.model_copy(update={"average": Average(**average)})


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
        (
            stage(8, refresh=4, evaluate=4, sample=50),
            {0, 4},
            {0, 4, 8},
            250,
        ),  # step 4 finds its sample among the refresh's
        (stage(8, evaluate=4, sample=500), set(), {0, 4, 8}, 300),  # a sample of all
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
    assert times_mined(made, made.terms["query"].negatives[0]) == max(1, len(refreshes))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (stage(100), 0),
        (stage(100, refresh=10, evaluate=5), 0),
        (stage(100, refresh=10, **after(10)), 1),
        (stage(100, refresh=10, **after(11)), 2),
        (stage(100, refresh=10, **after(30)), 3),
        (stage(100, refresh=10, **READY), 3),  # until the bound of 20 steps
        (stage(100, evaluate=10, **after(25)), 3),
        (stage(100, refresh=10, evaluate=5, **after(10)), 1 + 2),
        (stage(100, refresh=10, evaluate=5, **READY), 3 + 3),
    ],
)
def test_checkpoints_that_something_is_still_made_of(made, expected):
    assert open_at_once(made) == expected


@pytest.mark.parametrize(
    ("made", "checkpoints", "vectors"),
    [
        (recipe(stage(10)), 2 + 1, 3),
        (recipe(stage(10), stage(10)), 2 + 2, 3),
        (recipe(stage(10), save_total_limit=4), 2 + 4, 3),
        (recipe(stage(10, evaluate=5)), 2 + 2 + 1, 3),  # the former best, while the new one is being named
        (recipe(stage(10, evaluate=5), stage(10), save_total_limit=2), 2 + 3 + 2 + 1, 3),
        (recipe(averaging(stage(10), start=0.5)), 2 + 1 + (2 + 1), 3),
        (recipe(averaging(stage(20, evaluate=5), checkpoints=3)), 2 + 2 + 1 + (2 + 3), 3),
        (recipe(stage(90, refresh=5, **after(10)), stage(90, refresh=5, **READY)), 2 + 2 + 3, 6),
        (recipe(stage(90, refresh=5, evaluate=5, **after(20)), stage(10)), 2 + 2 + 1 + (1 + 8), 3 + 8),
    ],
)
def test_a_run_directory_at_its_fullest(made, checkpoints, vectors):
    assert (checkpoints_at_once(made), vectors_at_once(made)) == (checkpoints, vectors)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (recipe(stage(10)), 1 + 1),
        (recipe(stage(10), stage(10), stage(10)), 1 + 1),
        (recipe(stage(10, evaluate=5), stage(10), save_total_limit=2), 1 + 3 + 1),
        (
            recipe(stage(10), stage(10).model_copy(update={"init_from": "previous", "keep_optimizer": True})),
            1 + 2,
        ),
    ],
)
def test_checkpoints_with_moments_are_those_of_the_running_stage(made, expected):
    assert moments_at_once(made) == expected


@pytest.mark.parametrize(
    ("made", "keep", "expected"),
    [
        (stage(100, refresh=10), {}, 10),
        (stage(100, refresh=10, **after(30)), {}, 7),
        (stage(100, refresh=10), {"keep_negatives": 2}, 3),  # and those just mined
        (stage(100, refresh=10, **after(30)), {"keep_negatives": 2}, 6),
        (stage(20, refresh=10), {"keep_negatives": 5}, 2),
        (stage(20), {"keep_negatives": 5}, 1),
    ],
)
def test_tables_that_are_there_at_once(made, keep, expected):
    source = made.terms["query"].negatives[0]
    assert generations_kept(recipe(made, **keep), made, source) == expected


def test_a_pool_that_takes_over_the_one_before_grows():
    def context(*sources: dict) -> Stage:
        negatives = [{"kind": "mix", "sources": sources}, {"kind": "random"}]
        return Stage.model_validate(
            {**stage(30, refresh=10).model_dump(), "terms": {"query": {"negatives": negatives}}}
        )

    new, momentum = [{"kind": "ann", "top_k": 30}, {"kind": "lookahead", "top_k": 30}], {"kind": "momentum"}
    assert candidates_kept(recipe(context(*new))) == 3 * 60
    assert candidates_kept(recipe(context(*new), context(*new, momentum), context(*new, momentum))) == 3 * (
        60 + 120 + 180
    )


def test_the_final_evaluation_encodes_once_per_document_tower_of_its_rows():
    def encodings(*rows: str, **changes) -> int:
        stages = [stage(10), stage(10).model_copy(update=changes)]
        return evaluation_encodings(
            recipe(*stages).model_copy(update={"final_evaluation": FinalEvaluation(rows=rows)})
        )

    assert encodings("untrained", "start", "stages") == 3
    assert encodings("stages") == 2 and encodings() == 1
    only_queries = {"trainable": "query_tower"}
    assert encodings("untrained", "stages", **only_queries) == 2 and encodings(**only_queries) == 1
    assert encodings("untrained", "stages", init_from="initial", **only_queries) == 2
    warm = InitFrom(recipe="demo/warmup")
    assert encodings("untrained", "start", "stages", init_from=warm) == 4
    assert encodings("start", init_from=warm, **only_queries) == 1
