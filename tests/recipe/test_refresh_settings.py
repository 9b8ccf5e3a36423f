import pytest

from pyserini_ance.recipe.refresh_settings import Refresh
from pyserini_ance.recipe.stage import Stage

BACKGROUND, READY = {"mode": "async"}, {"mode": "async", "adopt": "when_ready"}


def stage(refresh: dict | None = None, evaluate: dict | None = None, steps: int = 20) -> Stage:
    negatives = [{"kind": "ann" if refresh else "random"}]
    settings = {"steps": steps, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}}
    settings["terms"] = {"query": {"negatives": negatives}}
    return Stage.model_validate({**settings, "refresh": refresh, "evaluate": evaluate})


def after(steps: int) -> dict:
    return {"mode": "async", "adopt": steps}


def how(product) -> tuple:
    return product.mode, product.every_steps, product.lag_steps


# Every 4 steps, at once: a step's negatives are 0 to 3 steps old.
AGES = [({}, 0, 3), (BACKGROUND, 4, 7), (after(1), 1, 4), (after(10), 10, 13), (READY, None, 8)]
# In the background, what step 16 gave would be adopted at the end.
MINED = [({}, [0, 4, 8, 12, 16]), (READY, [0, 4, 8, 12, 16]), (BACKGROUND, [0, 4, 8, 12])]
MINED += [(after(3), [0, 4, 8, 12, 16]), (after(9), [0, 4, 8])]
FOLLOWS = [({}, {}, ("sync", 8, 0)), ({}, BACKGROUND, ("async", 8, 8)), ({}, READY, ("async", 8, None))]
FOLLOWS += [(BACKGROUND, {}, ("async", 8, 8)), (after(3), BACKGROUND, ("async", 8, 3))]
FOLLOWS += [(after(3), {"adopt": 5}, ("async", 8, 5)), (READY, {}, ("async", 8, None))]
FOLLOWS += [(READY, {"mode": "sync"}, ("sync", 8, 0))]


@pytest.mark.parametrize("settings, lag, staleness", AGES)
def test_how_late_and_how_old(settings, lag, staleness):
    refresh = Refresh.model_validate({"every_steps": 4, **settings})
    assert (refresh.lag_steps, refresh.staleness_steps) == (lag, staleness)


@pytest.mark.parametrize("settings, steps", MINED)
def test_nothing_is_mined_that_would_be_adopted_after_the_last_step(settings, steps):
    made = stage({"every_steps": 4, **settings})
    assert [step for step in range(21) if made.refresh_is_due(step)] == steps


def test_dev_is_measured_at_the_end_whatever_the_lag():
    for settings in ({}, after(15), READY):
        made = stage(evaluate={"every_steps": 8, **settings})
        assert [step for step in range(21) if made.evaluation_is_due(step)] == [0, 8, 16, 20]
        last = stage(evaluate={"every_steps": 8, "keep_best": False, **settings})
        assert [step for step in range(21) if last.evaluation_is_due(step)] == [8, 16, 20]


@pytest.mark.parametrize("refresh, evaluate, expected", FOLLOWS)
def test_open_settings_of_evaluate_follow_refresh(refresh, evaluate, expected):
    made = stage({"every_steps": 4, **refresh}, {"every_steps": 8, "queries": 5, **evaluate})
    assert how(made.effective_evaluate) == expected and made.effective_evaluate.queries == 5


def test_tables_without_a_refresh_are_made_once_and_inline():
    assert stage().effective_evaluate is None
    assert how(stage().effective_refresh) == ("sync", 20, 0)
    assert how(stage(evaluate={"every_steps": 8, **READY}).effective_refresh) == ("sync", 20, 0)
    assert how(stage({"every_steps": 4, **READY}).effective_refresh) == ("async", 4, None)


def test_a_refresh_in_chunks_takes_the_queries_in_turn():
    refresh = Refresh(every_steps=4, query_chunks=3)
    chunks = [slice(0, 3), slice(3, 7), slice(7, 11), slice(0, 3)]
    assert [refresh.chunk(step, 11) for step in (0, 4, 8, 12)] == chunks
    assert [refresh.chunk(step, 3) for step in (4, 9)] == [slice(1, 2), slice(2, 3)]
    assert Refresh(every_steps=4).chunk(8, 11) is None
