import math

import pytest
import torch
from torch.nn.functional import kl_div

from pyserini_ance.trainer.losses.kl import Kl


def drawn(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(12, 7, generator=generator).requires_grad_()
    teacher = 5 * torch.randn(12, 7, generator=generator)
    mask = torch.rand(12, 7, generator=generator) < 0.7
    mask[:, :2] = True
    return scores, teacher.masked_fill(~mask, torch.nan), mask


def test_a_slow_loop_with_torchs_own_divergence_agrees():
    scores, teacher, mask = drawn()
    loss = Kl(temperature=0.5, teacher_temperature=2.0)(scores, torch.zeros_like(scores), mask, teacher)
    for row in range(len(scores)):
        chosen = mask[row]
        student = (scores[row, chosen] / 0.5).log_softmax(0)
        target = (teacher[row, chosen] / 2.0).log_softmax(0)
        expected = kl_div(student, target, log_target=True, reduction="sum")
        assert float(loss[row].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    loss.sum().backward()
    assert torch.isfinite(scores.grad).all() and (scores.grad[~mask] == 0).all()


def test_exact_values():
    scores = torch.tensor([[0.0, 0.0], [0.0, 0.0], [4.0, 0.0]])
    teacher = torch.tensor([[math.log(3), 0.0], [0.0, torch.nan], [4.0, 0.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert Kl()(scores, torch.zeros(3, 2), mask, teacher).tolist() == pytest.approx(
        [expected, 0, 0], abs=1e-6
    )


@pytest.mark.parametrize("size", [700.0, -700.0])
def test_scores_of_the_size_of_robertas_are_exact(size):
    scores = torch.tensor([[size + 1.5, size - 0.25, size]])
    teacher = torch.tensor([[9.0, -11.0, 3.0]])
    found = Kl()(scores, torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool), teacher)
    student, target = scores.double().log_softmax(1), teacher.double().log_softmax(1)
    expected = (target.exp() * (target - student)).sum()
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
