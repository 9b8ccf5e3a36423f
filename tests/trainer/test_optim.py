import pytest
from torch import nn

from pyserini_ance.recipe.models import Optimizer, Stage
from pyserini_ance.trainer.optim import build_optimizer, learning_rate


def stage(steps: int, schedule_steps: int | None = None, **optimizer) -> Stage:
    settings = {"steps": steps, "schedule_steps": schedule_steps, "batch_queries": 1, "terms": {"query": {"pool": "step"}}}
    return Stage.model_validate({**settings, "optimizer": {"learning_rate": 8.0, **optimizer}})


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"steps": 4}, [8, 6, 4, 2]),
        ({"steps": 4, "decay": "constant"}, [8, 8, 8, 8]),
        ({"steps": 6, "warmup_steps": 2}, [0, 4, 8, 6, 4, 2]),
        ({"steps": 4, "warmup_steps": 2, "decay": "constant"}, [0, 4, 8, 8]),
        ({"steps": 3, "schedule_steps": 8}, [8, 7, 6]),
        ({"steps": 2, "warmup_steps": 4}, [0, 2]),
        ({"steps": 4, "warmup_steps": 4}, [0, 2, 4, 6]),
    ],
)
def test_learning_rates_of_all_steps(settings, rates):
    made = stage(**settings)
    assert [learning_rate(made, step) for step in range(made.steps)] == pytest.approx(rates)


def test_biases_and_norms_are_not_decayed_and_frozen_weights_left_out():
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    module[2].weight.requires_grad = False
    decayed, plain = build_optimizer(module, Optimizer(learning_rate=1.0, weight_decay=0.1, betas=(0.5, 0.6), eps=1e-3)).param_groups
    assert [p.shape for p in decayed["params"]] == [(4, 3)] and decayed["weight_decay"] == 0.1
    assert [p.shape for p in plain["params"]] == [(4,), (4,), (4,), (2,)] and plain["weight_decay"] == 0.0
    assert (decayed["betas"], decayed["eps"]) == ((0.5, 0.6), 1e-3)
