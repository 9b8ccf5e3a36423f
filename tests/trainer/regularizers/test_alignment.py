import pytest
import torch

from pyserini_ance.trainer.regularizers.alignment import Alignment


def test_it_is_the_mean_squared_distance_of_the_pairs():
    anchors, positives = torch.tensor([[0.0, 0], [1, 1]]), torch.tensor([[3.0, 4], [1, 1], [1, 2]])
    pairs = torch.tensor([[0, 0], [1, 1], [1, 2]])
    assert Alignment()(anchors, positives, pairs).item() == pytest.approx((25 + 0 + 1) / 3)
