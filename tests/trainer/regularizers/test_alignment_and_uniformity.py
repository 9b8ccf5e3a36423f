"""What values that agree with loops (`test_objective.py`) leave open: equal vectors, and one alone."""

import torch

from pyserini_ance.trainer.regularizers.alignment_and_uniformity import Uniformity


def test_gradients_push_apart_and_stay_finite_where_vectors_are_equal():
    anchors = torch.tensor([[1.0, 0], [1, 0], [0, 1]], requires_grad=True)
    Uniformity()(anchors, torch.eye(2)[:1], torch.empty(0, 2).long()).backward()
    assert torch.isfinite(anchors.grad).all() and anchors.grad[2, 1] < 0


def test_a_single_text_is_uniform():
    vectors = torch.ones(1, 3, requires_grad=True)
    found = Uniformity()(vectors, vectors, torch.tensor([[0, 0]]))
    found.backward()
    assert found.item() == 0 and vectors.grad.abs().sum() == 0
