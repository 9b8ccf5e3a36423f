import pytest
import torch

from pyserini_ance.trainer.losses.margin_mse import MarginMse


def test_a_slow_loop_agrees():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(10, 6, generator=generator).requires_grad_()
    teacher = 3 * torch.randn(10, 6, generator=generator)
    labels = (torch.rand(10, 6, generator=generator) < 0.3).float()
    mask = torch.rand(10, 6, generator=generator) < 0.8
    labels[:, 0], mask[:, 0], mask[:, 1], labels[:, 1] = 1.0, True, True, 0.0
    loss = MarginMse(scale=2.0)(scores, labels, mask, teacher.masked_fill(~mask, torch.nan))
    for row in range(len(scores)):
        squares = [
            (2 * (scores[row, p] - scores[row, n]) - (teacher[row, p] - teacher[row, n])) ** 2
            for p in range(6)
            for n in range(6)
            if mask[row, p] and mask[row, n] and labels[row, p] and not labels[row, n]
        ]
        assert float(loss[row].detach()) == pytest.approx(
            float(sum(squares).detach()) / len(squares), rel=1e-5
        )
    loss.sum().backward()
    assert torch.isfinite(scores.grad).all() and (scores.grad[~mask] == 0).all()


def test_equal_margins_cost_nothing_whatever_the_offset():
    scores = torch.tensor([[3.0, 1.0, -2.0]])
    labels, mask = torch.tensor([[1.0, 0.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    assert MarginMse()(scores, labels, mask, scores + 100).tolist() == [0.0]
    assert MarginMse()(scores, labels, mask, torch.zeros(1, 3)).tolist() == [(2**2 + 5**2) / 2]
