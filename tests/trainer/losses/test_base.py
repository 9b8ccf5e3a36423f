"""Hinge and RankNet, which are no more than a function of pairs, and the pairs themselves."""

import math

import pytest
import torch

from pyserini_ance.trainer.losses.hinge import Hinge
from pyserini_ance.trainer.losses.ranknet import RankNet


def slow_mean(of_pair, scores: list[float], labels: list[float], mask: list[bool]) -> float:
    there = [(s, label) for s, label, shown in zip(scores, labels, mask, strict=True) if shown]
    values = [of_pair(s, t) for s, of_s in there for t, of_t in there if of_s > of_t]
    return sum(values) / max(1, len(values))


def slow_hinge(s: float, t: float) -> float:
    return max(0.0, 0.5 - s + t)


def slow_ranknet(s: float, t: float) -> float:
    return math.log(1 + math.exp(t - s))


@pytest.mark.parametrize(
    ("scores", "labels", "mask", "hinge", "ranknet"),
    [
        ([0, 0], [1, 0], [1, 1], 0.5, math.log(2)),
        ([1, 0, 2], [1, 0, 0], [1, 1, 0], 0.0, math.log(1 + math.exp(-1))),  # a masked negative
        (
            [1, 0.75, 2],
            [1, 0, 0],
            [1, 1, 1],
            (0.25 + 1.5) / 2,
            (math.log(1 + math.exp(-0.25)) + math.log(1 + math.e)) / 2,
        ),
        (
            [1, 0, 0.5],
            [1, 1, 0],
            [1, 1, 1],
            (0 + 1) / 2,
            (math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(0.5))) / 2,
        ),
        (
            [3, 1, 2],
            [2, 0, 1],
            [1, 1, 1],
            0.0,
            (2 * math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-2))) / 3,
        ),  # grades
        ([5, 7], [1, 0], [1, 0], 0.0, 0.0),  # nothing to stand against
        ([-1000, 1000], [1, 0], [1, 1], 2000.5, 2000.0),  # no overflow
    ],
)
def test_exact_values(scores, labels, mask, hinge, ranknet):
    case = (
        torch.tensor([scores], dtype=torch.float32),
        torch.tensor([labels]).float(),
        torch.tensor([mask]).bool(),
    )
    assert Hinge(margin=0.5)(*case).tolist() == pytest.approx([hinge], abs=1e-6)
    assert RankNet()(*case).tolist() == pytest.approx([ranknet], abs=1e-6)


@pytest.mark.parametrize(("loss", "of_pair"), [(Hinge(margin=0.5), slow_hinge), (RankNet(), slow_ranknet)])
def test_they_agree_with_a_slow_loop_over_grades(loss, of_pair):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 9, generator=generator)
    labels = torch.randint(-1, 3, (20, 9), generator=generator).clamp(min=0).float()
    mask = torch.rand(20, 9, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    expected = [
        slow_mean(of_pair, *row) for row in zip(scores.tolist(), labels.tolist(), mask.tolist(), strict=True)
    ]
    assert loss(scores, labels, mask).tolist() == pytest.approx(expected, rel=1e-5)
