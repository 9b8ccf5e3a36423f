import math

import pytest
import torch
from helpers.device_counts import Operators
from torch import nn

from pyserini_ance.recipe.optimization import Optimizer
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer.optim import (
    AdamW,
    Lamb,
    build_optimizer,
    learning_rate,
    update_weights,
    warmup_hint,
)


def stage(
    steps: int, warmup_steps: int = 0, decay: str = "linear", horizon: int | None = None, **schedule
) -> Stage:
    """`schedule`: further keys of `lr_schedule`."""
    settings = {"steps": steps, "batch_queries": 1, "terms": {"query": {"in_batch_negatives": True}}}
    lr_schedule = {"kind": decay, "warmup_steps": warmup_steps, "total_steps": horizon, **schedule}
    return Stage.model_validate({**settings, "optimizer": {"learning_rate": 8.0}, "lr_schedule": lr_schedule})


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"steps": 4}, [8, 6, 4, 2]),
        ({"steps": 4, "decay": "constant"}, [8, 8, 8, 8]),
        ({"steps": 6, "warmup_steps": 2}, [0, 4, 8, 6, 4, 2]),
        ({"steps": 4, "warmup_steps": 2, "decay": "constant"}, [0, 4, 8, 8]),
        ({"steps": 3, "horizon": 8}, [8, 7, 6]),
        ({"steps": 2, "warmup_steps": 4}, [0, 2]),
        ({"steps": 4, "warmup_steps": 4}, [0, 2, 4, 6]),
        ({"steps": 4, "decay": "cosine"}, [8, 4 + math.sqrt(8), 4, 4 - math.sqrt(8)]),
        ({"steps": 5, "decay": "cosine", "warmup_steps": 2}, [0, 4, 8, 6, 2]),
        ({"steps": 6, "cycle_steps": 3, "warmup_steps": 1}, [0, 8, 4, 0, 8, 4]),
        ({"steps": 5, "cycle_steps": 2}, [8, 4, 8, 4, 8]),
        ({"steps": 5, "cycle_steps": 3, "warmup_steps": 1, "decay": "constant"}, [0, 8, 8, 0, 8]),
        ({"steps": 5, "cycle_steps": 2, "horizon": 8}, [8, 7, 8, 7, 8]),  # each cycle is left before its end
        ({"steps": 2, "cycle_steps": 4}, [8, 6]),
        ({"steps": 3, "offset_steps": 1, "cycle_steps": 2}, [4, 8, 4]),
        ({"steps": 2, "offset_steps": 2}, [4, 2]),
        ({"steps": 2, "offset_steps": 1, "warmup_steps": 2, "horizon": 6}, [4, 8]),
    ],
)
def test_learning_rates_of_all_steps(settings, rates):
    made = stage(**settings)
    assert [learning_rate(made, step) for step in range(made.steps)] == pytest.approx(rates)


def test_episodes_may_share_one_schedule_or_have_one_each():
    """ANCE-Tele, arXiv:2210.17167, Figure 2: standard ANCE, and ANCE with CyclicalLR."""
    whole = stage(12, warmup_steps=3)
    shared = [stage(4, warmup_steps=3, horizon=12, offset_steps=before) for before in (0, 4, 8)]
    assert [learning_rate(one, step) for one in shared for step in range(4)] == [
        learning_rate(whole, step) for step in range(12)
    ]
    cyclic, alone = stage(12, warmup_steps=3, cycle_steps=4), stage(4, warmup_steps=3)
    assert [learning_rate(cyclic, step) for step in range(12)] == 3 * [
        learning_rate(alone, step) for step in range(4)
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"steps": 5, "horizon": 4},
            "lr_schedule.total_steps 4 ends before steps 5: the rest would train at rate 0",
        ),
        (
            {"steps": 5, "offset_steps": 3, "horizon": 7},
            r"lr_schedule.total_steps 7 ends before lr_schedule.offset_steps \+ steps 8",
        ),
        (
            {"steps": 9, "cycle_steps": 5, "horizon": 4},
            "lr_schedule.total_steps 4 ends before lr_schedule.cycle_steps 5",
        ),
        (
            {"steps": 9, "cycle_steps": 5, "warmup_steps": 5},
            "warmup_steps 5 fill the lr_schedule.cycle_steps 5",
        ),
    ],
)
def test_schedules_that_would_waste_steps_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        stage(**settings)


@pytest.mark.parametrize(("kind", "cls"), [("adamw", AdamW), ("lamb", Lamb)])
def test_biases_and_norms_are_not_decayed_and_frozen_weights_left_out(kind, cls):
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    module[2].weight.requires_grad = False
    optimizer = build_optimizer(
        module, Optimizer(kind=kind, learning_rate=1.0, weight_decay=0.1, betas=(0.5, 0.6), eps=1e-3)
    )
    decayed, plain = optimizer.param_groups
    assert type(optimizer) is cls
    assert [p.shape for p in decayed["params"]] == [(4, 3)] and decayed["weight_decay"] == 0.1
    assert [p.shape for p in plain["params"]] == [(4,), (4,), (4,), (2,)] and plain["weight_decay"] == 0.0
    assert (decayed["betas"], decayed["eps"]) == ((0.5, 0.6), 1e-3)


def test_a_stage_that_ends_within_its_warm_up_gets_a_hint():
    assert warmup_hint("a", stage(4, warmup_steps=20)) == (
        "stage a ends within its warm-up: 4 steps, lr_schedule.warmup_steps 20. The highest learning rate is "
        "1.2e+00 instead of 8.0e+00; lower stages.a.lr_schedule.warmup_steps"
    )
    complete = [stage(4, 3), stage(4, 2), stage(2, 20, horizon=40), stage(2, 4, cycle_steps=9)]
    assert [warmup_hint("a", made) for made in complete] == [None] * 4


def test_a_step_of_adamw_launches_as_many_operators_for_two_hundred_tensors_as_for_two():
    """torch's fused AdamW has no meta device; its operators are the same on a CPU. LAMB: test_lamb.py."""
    for matrices, vectors in ((1, 1), (76, 123)):  # the latter: BERT-base
        module = nn.ParameterList(
            [nn.Parameter(torch.ones(shape)) for shape in [(4, 4)] * matrices + [(4,)] * vectors]
        )
        optimizer = build_optimizer(module, Optimizer(learning_rate=1e-3))
        for _ in range(2):  # the first step makes the moments
            for parameter in module:
                parameter.grad = torch.ones_like(parameter)
            with Operators() as counts:
                update_weights(optimizer, 1e-3)
        assert counts.launches == {"_foreach_add_": 2, "_fused_adamw_": 2}  # one for each group
