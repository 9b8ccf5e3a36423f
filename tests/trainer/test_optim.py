import math

import pytest
import torch
from torch import nn

from pyserini_ance.recipe.stage import Optimizer, Stage
from pyserini_ance.trainer.optim import AdamW, Lamb, build_optimizer, learning_rate

BETAS, EPS = (0.9, 0.99), 1e-3
# Settings of a stage and its schedule, and the rates of all steps.
RATES = [({"steps": 4}, [8, 6, 4, 2]), ({"steps": 4, "decay": "constant"}, [8, 8, 8, 8])]
RATES += [({"steps": 6, "warmup_steps": 2}, [0, 4, 8, 6, 4, 2]), ({"steps": 3, "horizon": 8}, [8, 7, 6])]
RATES += [({"steps": 4, "warmup_steps": 2, "decay": "constant"}, [0, 4, 8, 8])]
RATES += [({"steps": 2, "warmup_steps": 4}, [0, 2]), ({"steps": 4, "warmup_steps": 4}, [0, 2, 4, 6])]
RATES += [({"steps": 4, "decay": "cosine"}, [8, 4 + math.sqrt(8), 4, 4 - math.sqrt(8)])]
RATES += [({"steps": 5, "decay": "cosine", "warmup_steps": 2}, [0, 4, 8, 6, 2])]
RATES += [({"steps": 2, "offset_steps": 2}, [4, 2])]
RATES += [({"steps": 2, "offset_steps": 1, "warmup_steps": 2, "horizon": 6}, [4, 8])]


def stage(steps: int, warmup_steps=0, decay="linear", horizon: int | None = None, **schedule) -> Stage:
    """`schedule`: further keys of `lr_schedule`."""
    settings = {"steps": steps, "batch_queries": 2, "terms": {"query": {"in_batch_negatives": True}}}
    lr_schedule = {"kind": decay, "warmup_steps": warmup_steps, "total_steps": horizon, **schedule}
    return Stage.model_validate({**settings, "optimizer": {"learning_rate": 8.0}, "lr_schedule": lr_schedule})


@pytest.mark.parametrize("settings, rates", RATES)
def test_learning_rates_of_all_steps(settings, rates):
    made = stage(**settings)
    assert [learning_rate(made, step) for step in range(made.steps)] == pytest.approx(rates)


@pytest.mark.parametrize(("kind", "cls"), [("adamw", AdamW), ("lamb", Lamb)])
def test_biases_and_norms_are_not_decayed_and_frozen_weights_left_out(kind, cls):
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    module[2].weight.requires_grad = False
    optimizer = build_optimizer(module, Optimizer(kind=kind, learning_rate=1.0, weight_decay=0.1))
    decayed, plain = optimizer.param_groups
    assert type(optimizer) is cls
    assert [p.shape for p in decayed["params"]] == [(4, 3)] and decayed["weight_decay"] == 0.1
    assert [p.shape for p in plain["params"]] == [(4,), (4,), (4,), (2,)] and plain["weight_decay"] == 0.0
    assert (decayed["betas"], decayed["eps"]) == ((0.9, 0.999), 1e-8)


class Slow:
    """The formulas for one tensor, in doubles."""

    def __init__(self, values: torch.Tensor, weight_decay: float):
        self.values, self.weight_decay = values.detach().double(), weight_decay
        self.first = self.second = torch.zeros_like(self.values)

    def step(self, gradient: torch.Tensor, rate: float) -> None:
        self.first = BETAS[0] * self.first + (1 - BETAS[0]) * gradient
        self.second = BETAS[1] * self.second + (1 - BETAS[1]) * gradient * gradient
        update = self.first / (self.second.sqrt() + EPS) + self.weight_decay * self.values
        norm, length = float(self.values.norm()), float(update.norm())
        self.values = self.values - rate * (min(norm, 10.0) / length if norm and length else 1.0) * update


def lamb(*groups: dict) -> Lamb:
    return Lamb([{**group, "betas": BETAS, "eps": EPS} for group in groups], lr=1.0)


def test_ten_steps_equal_a_written_out_reference():
    """A matrix, one with its norm cut, one of zeros, a vector without decay; the rate changes each step."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator) for shape in ((3, 4), (5, 4), (4,))]
    parameters = [nn.Parameter(p) for p in (drawn[0], 9 * drawn[1], torch.zeros(2, 2), drawn[2])]
    assert parameters[1].norm() > 20
    decays = [0.1, 0.1, 0.1, 0.0]
    optimizer = lamb({"params": parameters[:3], "weight_decay": 0.1}, {"params": parameters[3:]})
    references = [Slow(p, decay) for p, decay in zip(parameters, decays, strict=True)]
    for step in range(10):
        for group in optimizer.param_groups:
            group["lr"] = rate = 0.05 * (10 - step)
        for parameter, reference in zip(parameters, references, strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            reference.step(parameter.grad.double(), rate)
        optimizer.step()
        for parameter, reference in zip(parameters, references, strict=True):
            torch.testing.assert_close(parameter.detach().double(), reference.values, rtol=1e-4, atol=1e-5)


def test_what_has_no_gradient_or_one_of_zeros_stays_where_it_is():
    moved, still, zero = (nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = lamb({"params": [moved, still, zero]})
    moved.grad, zero.grad = torch.ones(2), torch.zeros(2)
    optimizer.step()
    assert still.tolist() == zero.tolist() == [1, 1] and still not in optimizer.state
    assert moved.tolist() != [1, 1]


def test_tensors_together_move_to_the_same_bits_as_one_by_one():
    """Together, as on a GPU; one after the other, as on a CPU."""
    generator = torch.Generator().manual_seed(1)
    starts = [torch.randn(shape, generator=generator) for shape in [(40, 8), (8, 8), (3, 5), (8,)]]
    parameters, others = ([nn.Parameter(p.clone()) for p in starts] for _ in range(2))
    together, single = (lamb({"params": own, "weight_decay": 0.01}) for own in (parameters, others))
    for step in range(5):
        for p, other in zip(parameters, others, strict=True):
            p.grad = other.grad = torch.randn(p.shape, generator=generator)
        single.param_groups[0]["lr"] = rate = 0.1 * (5 - step)
        single.step()
        with torch.no_grad():
            together._move(parameters, {**together.param_groups[0], "lr": rate})
        for p, other in zip(parameters, others, strict=True):
            assert torch.equal(p, other)
