import itertools
import math

import pytest
import torch

from pyserini_ance.trainer.regularizers.alignment_and_uniformity import Alignment, Uniformity


def slow(vectors: torch.Tensor, t: float) -> float:
    terms = [
        math.exp(-t * sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))
        for x, y in itertools.combinations(vectors.tolist(), 2)
    ]
    return math.log(sum(terms) / len(terms))


@pytest.mark.parametrize("t", [2, 5])
def test_it_agrees_with_a_slow_loop_over_both_sides(t):
    torch.manual_seed(0)
    anchors, positives = (torch.nn.functional.normalize(torch.randn(count, 4), dim=1) for count in (6, 9))
    found = Uniformity(t=t)(anchors, positives, torch.empty(0, 2).long())
    assert found.item() == pytest.approx(slow(anchors, t) + slow(positives, t), rel=1e-5)


def test_gradients_push_apart_and_stay_finite_where_vectors_are_equal():
    anchors = torch.tensor([[1.0, 0], [1, 0], [0, 1]], requires_grad=True)
    Uniformity()(anchors, torch.eye(2)[:1], torch.empty(0, 2).long()).backward()
    assert torch.isfinite(anchors.grad).all() and anchors.grad[2, 1] < 0


def test_a_single_text_is_uniform():
    vectors = torch.ones(1, 3, requires_grad=True)
    found = Uniformity()(vectors, vectors, torch.tensor([[0, 0]]))
    found.backward()
    assert found.item() == 0 and vectors.grad.abs().sum() == 0


def test_alignment_is_the_mean_squared_distance_of_the_pairs():
    anchors, positives = torch.tensor([[0.0, 0], [1, 1]]), torch.tensor([[3.0, 4], [1, 1], [1, 2]])
    pairs = torch.tensor([[0, 0], [1, 1], [1, 2]])
    assert Alignment()(anchors, positives, pairs).item() == pytest.approx((25 + 0 + 1) / 3)
