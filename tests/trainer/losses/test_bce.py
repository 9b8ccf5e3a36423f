import math

import pytest
import torch

from pyserini_ance.trainer.losses.bce import Bce


def slow_bce(scores: list[float], labels: list[float], mask: list[bool]) -> float:
    """-log of the probability of the right answer, averaged over positives and over negatives."""
    chances = [1 / (1 + math.exp(-score)) for score in scores]
    positives = [
        -math.log(p) for p, label, there in zip(chances, labels, mask, strict=True) if there and label
    ]
    negatives = [
        -math.log(1 - p) for p, label, there in zip(chances, labels, mask, strict=True) if there and not label
    ]
    return sum(positives) / len(positives) / 2 + sum(negatives) / max(1, len(negatives)) / 2


@pytest.mark.parametrize(
    ("scores", "labels", "mask", "expected"),
    [
        ([0, 0], [1, 0], [1, 1], math.log(2)),
        ([math.log(3), 0], [1, 0], [1, 1], (math.log(4 / 3) + math.log(2)) / 2),
        (
            [math.log(3), 0, 0, 0],
            [1, 0, 0, 0],
            [1, 1, 1, 1],
            (math.log(4 / 3) + math.log(2)) / 2,
        ),  # three negatives weigh as one
        ([0, 0, math.log(3)], [1, 0, 0], [1, 1, 1], (math.log(2) + (math.log(2) + math.log(4)) / 2) / 2),
        ([0, 5, 7], [1, 0, 1], [1, 0, 0], math.log(2) / 2),  # nothing to stand against
        ([-1000, 1000], [1, 0], [1, 1], 1000.0),  # no overflow
        ([1000, -1000], [1, 0], [1, 1], 0.0),
    ],
)
def test_exact_values(scores, labels, mask, expected):
    found = Bce()(
        torch.tensor([scores], dtype=torch.float32),
        torch.tensor([labels]).float(),
        torch.tensor([mask]).bool(),
    )
    assert found.tolist() == pytest.approx([expected], abs=1e-6)


def test_it_agrees_with_a_slow_loop():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 9, generator=generator)
    labels = (torch.rand(20, 9, generator=generator) < 0.3).float()
    mask = torch.rand(20, 9, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    expected = [slow_bce(*row) for row in zip(scores.tolist(), labels.tolist(), mask.tolist(), strict=True)]
    assert Bce()(scores, labels, mask).tolist() == pytest.approx(expected, rel=1e-5)
