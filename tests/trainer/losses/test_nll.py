import math

import pytest
import torch

from pyserini_ance.trainer.losses.nll import Nll


def slow_nll(scores: list[float], labels: list[float], mask: list[bool]) -> float:
    negatives = sum(
        math.exp(s) for s, label, there in zip(scores, labels, mask, strict=True) if there and not label
    )
    positives = [s for s, label, there in zip(scores, labels, mask, strict=True) if there and label]
    return sum(-math.log(math.exp(s) / (math.exp(s) + negatives)) for s in positives) / len(positives)


@pytest.mark.parametrize(
    ("scores", "labels", "mask", "expected"),
    [
        ([0, 0], [1, 0], [1, 1], math.log(2)),
        ([math.log(3), 0, 0], [1, 0, 0], [1, 1, 1], math.log(5 / 3)),
        ([math.log(3), 0, 0], [1, 0, 0], [1, 1, 0], math.log(4 / 3)),  # a masked negative
        (
            [math.log(3), 0, 0],
            [1, 1, 0],
            [1, 1, 1],
            (math.log(4 / 3) + math.log(2)) / 2,
        ),  # positives do not compete
        ([math.log(3), 99, 0], [1, 1, 0], [1, 0, 1], math.log(4 / 3)),  # a masked positive
        ([5, 7], [1, 0], [1, 0], 0.0),  # nothing to stand against
        ([1000, -1000], [1, 0], [1, 1], 0.0),
        ([-1000, 1000], [1, 0], [1, 1], 2000.0),  # no overflow
    ],
)
def test_exact_values(scores, labels, mask, expected):
    found = Nll()(
        torch.tensor([scores], dtype=torch.float32),
        torch.tensor([labels]).float(),
        torch.tensor([mask]).bool(),
    )
    assert found.tolist() == pytest.approx([expected], abs=1e-6)


def test_values_and_gradients_agree_with_a_slow_loop():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 9, generator=generator).requires_grad_()
    labels = (torch.rand(20, 9, generator=generator) < 0.3).float()
    mask = torch.rand(20, 9, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    found = Nll()(scores, labels, mask)
    expected = [slow_nll(*row) for row in zip(scores.tolist(), labels.tolist(), mask.tolist(), strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    found.sum().backward()
    assert torch.isfinite(scores.grad).all() and (scores.grad[~mask] == 0).all()
