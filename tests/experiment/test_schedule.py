import pytest

from pyserini_ance.experiment.schedule import documents_encoded, evaluation_steps, refresh_steps, times_mined
from pyserini_ance.recipe.models import Stage


def stage(steps: int, refresh: int | None = None, evaluate: int | None = None, sample: int | None = None) -> Stage:
    settings = {"steps": steps, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}}
    negatives = [{"kind": "ann" if refresh else "random"}]
    return Stage.model_validate(
        {
            **settings,
            "terms": {"query": {"negatives": negatives}},
            "refresh": refresh and {"every_steps": refresh},
            "evaluate": evaluate and {"every_steps": evaluate, "sample_documents": sample},
        }
    )


@pytest.mark.parametrize(
    ("made", "refreshes", "evaluations", "encoded"),
    [
        (stage(10), set(), set(), 0),
        (stage(10, refresh=4), {0, 4, 8}, set(), 300),
        (stage(8, refresh=4), {0, 4}, set(), 200),  # nothing is mined after the last step
        (stage(10, evaluate=4), set(), {4, 8, 10}, 300),
        (stage(8, evaluate=4), set(), {4, 8}, 200),
        (stage(3, evaluate=4), set(), {3}, 100),
        (stage(8, refresh=4, evaluate=4), {0, 4}, {4, 8}, 300),  # step 4 is encoded once
        (stage(8, refresh=4, evaluate=4, sample=50), {0, 4}, {4, 8}, 250),  # step 4 finds its sample among the refresh's
        (stage(8, evaluate=4, sample=500), set(), {4, 8}, 200),  # a sample of all
    ],
)
def test_steps_at_which_something_happens(made, refreshes, evaluations, encoded):
    assert refresh_steps(made) == refreshes and evaluation_steps(made) == evaluations
    assert documents_encoded(made, 100) == encoded
    assert times_mined(made, made.terms["query"].negatives[0]) == max(1, len(refreshes))
