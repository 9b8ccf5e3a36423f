"""LAMB against its formula, one number after the other in float64."""

import math

import pytest
import torch
from helpers.device_counts import META, DeviceCounts

from pyserini_ance.trainer.optim import Lamb

BETAS, EPS = (0.9, 0.99), 1e-3


class Slow:
    """One tensor as a list of numbers."""

    def __init__(self, values: list[float], weight_decay: float):
        self.values, self.weight_decay = values, weight_decay
        self.first, self.second = [0.0] * len(values), [0.0] * len(values)

    def step(self, gradient: list[float], rate: float) -> None:
        self.first = [BETAS[0] * m + (1 - BETAS[0]) * g for m, g in zip(self.first, gradient, strict=True)]
        self.second = [
            BETAS[1] * v + (1 - BETAS[1]) * g * g for v, g in zip(self.second, gradient, strict=True)
        ]
        anchor_sets = zip(self.first, self.second, self.values, strict=True)
        anchor_set = [m / (math.sqrt(v) + EPS) + self.weight_decay * p for m, v, p in anchor_sets]
        norm, length = (math.sqrt(sum(x * x for x in numbers)) for numbers in (self.values, anchor_set))
        trust = min(norm, 10.0) / length if norm and length else 1.0
        self.values = [p - rate * trust * u for p, u in zip(self.values, anchor_set, strict=True)]


def lamb(*groups: dict) -> Lamb:
    return Lamb(groups, lr=1.0, betas=BETAS, eps=EPS)


def test_ten_steps_equal_a_written_out_reference():
    """A matrix, one whose norm is cut, one of zeros, a vector without decay; the rate changes from step to
    step."""
    generator = torch.Generator().manual_seed(0)
    matrices = [
        torch.randn(3, 4, generator=generator),
        9 * torch.randn(5, 4, generator=generator),
        torch.zeros(2, 2),
    ]
    parameters = [torch.nn.Parameter(p) for p in (*matrices, torch.randn(4, generator=generator))]
    assert parameters[1].norm() > 20
    decays = [0.1, 0.1, 0.1, 0.0]
    optimizer = lamb({"params": parameters[:3], "weight_decay": 0.1}, {"params": parameters[3:]})
    references = [
        Slow(p.detach().double().flatten().tolist(), decay)
        for p, decay in zip(parameters, decays, strict=True)
    ]
    for step in range(10):
        for group in optimizer.param_groups:
            group["lr"] = rate = 0.05 * (10 - step)
        for parameter, reference in zip(parameters, references, strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            reference.step(parameter.grad.double().flatten().tolist(), rate)
        optimizer.step()
        for parameter, reference in zip(parameters, references, strict=True):
            assert parameter.detach().flatten().tolist() == pytest.approx(
                reference.values, rel=1e-4, abs=1e-5
            )


def test_the_first_step_worked_by_hand():
    """No bias correction: m = g / 10, v = g^2 / 100, so each direction is 1 / (1 + eps * 10 / g): here all
    alike."""
    small, large, none = (torch.nn.Parameter(torch.full((4,), value)) for value in (3.0, 50.0, 0.0))
    optimizer = Lamb([small, large, none], lr=0.5, betas=(0.9, 0.99), eps=1e-12)
    for parameter in (small, large, none):
        parameter.grad = torch.full((4,), 2.0)
    optimizer.step()
    assert small.tolist() == pytest.approx([3 - 0.5 * 6 / 2] * 4)  # norm 6, spread over 4 numbers: 3 each
    assert large.tolist() == pytest.approx([50 - 0.5 * 10 / 2] * 4)  # norm 100, cut to 10
    assert none.tolist() == pytest.approx([-0.5] * 4)


def test_what_has_no_gradient_stays_where_it_is():
    moved, still = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = lamb({"params": [moved, still]})
    moved.grad = torch.ones(2)
    optimizer.step()
    assert still.tolist() == [1, 1] and still not in optimizer.state and moved.tolist() != [1, 1]


def test_a_gradient_of_zeros_moves_nothing():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.zeros(2)
    lamb({"params": [parameter]}).step()
    assert parameter.tolist() == [1, 1]


def one_by_one(parameters: list[torch.Tensor], state: list[list[torch.Tensor]], rate: float, decay: float):
    """A step of one tensor after the other, by single operators."""
    for parameter, (first, second) in zip(parameters, state, strict=True):
        first.lerp_(parameter.grad, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(parameter.grad, parameter.grad, value=1 - BETAS[1])
        update = first / second.sqrt().add_(EPS)
        update.add_(parameter, alpha=decay)
        norm, length = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(update)
        ratio = torch.where((norm > 0) & (length > 0), norm.clamp(max=10.0) / length, 1.0)
        parameter.addcmul_(update, ratio, value=-rate)


@pytest.mark.parametrize("together", [False, True], ids=["as on CPU", "as on a GPU"])
def test_tensors_together_move_to_the_same_bits_as_one_by_one(together):
    generator = torch.Generator().manual_seed(1)
    shapes = [(40, 8), (8, 8), (3, 5), (8,)]
    starts = [torch.randn(shape, generator=generator) for shape in shapes]
    parameters, expected = ([torch.nn.Parameter(p.clone()) for p in starts] for _ in range(2))
    state = [[torch.zeros_like(p), torch.zeros_like(p)] for p in expected]
    optimizer = lamb({"params": parameters, "weight_decay": 0.01})
    for step in range(5):
        for p, other in zip(parameters, expected, strict=True):
            p.grad = other.grad = torch.randn(p.shape, generator=generator)
        with torch.no_grad():
            one_by_one(expected, state, 0.1 * (5 - step), 0.01)
            if together:
                optimizer._move(parameters, 0.1 * (5 - step), BETAS, EPS, 0.01)
        if not together:
            optimizer.param_groups[0]["lr"] = 0.1 * (5 - step)
            optimizer.step()
        for p, other in zip(parameters, expected, strict=True):
            assert torch.equal(p, other)


def test_a_step_on_a_gpu_launches_as_many_operators_for_two_hundred_tensors_as_for_two():
    def step(matrices: int, vectors: int) -> DeviceCounts:
        groups = [[torch.nn.Parameter(torch.empty(shape, device=META)) for _ in range(count)]
                  for shape, count in (((4, 4), matrices), ((4,), vectors))]  # fmt: skip
        optimizer = lamb({"params": groups[0], "weight_decay": 0.1}, {"params": groups[1]})
        for parameter in (p for group in groups for p in group):
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()  # makes the moments
        with DeviceCounts() as counts:
            optimizer.step()
        return counts

    for counts in (step(1, 1), step(76, 123)):  # the latter: BERT-base
        # One of them, whose factors are single numbers, still runs a kernel for each tensor.
        assert (counts.launches.total(), counts.waits.total(), counts.copies.total()) == (35, 0, 0)
