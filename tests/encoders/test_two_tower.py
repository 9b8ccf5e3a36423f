import pytest
import torch
from torch import nn

from pyserini_ance.encoders.family import Tower, TwoTower


class Scale(Tower):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, side, ids, mask):
        return (ids * mask).float() * self.factor


def test_each_side_goes_through_its_tower():
    towers, ids, mask = TwoTower(Scale(2.0), Scale(3.0)), torch.tensor([[1, 5]]), torch.tensor([[1, 0]])
    assert not towers.tied and len(list(towers.parameters())) == 2
    assert towers("query", ids, mask).tolist() == [[2.0, 0.0]]
    assert towers("document", ids, mask).tolist() == [[3.0, 0.0]]


def test_a_tower_that_needs_a_mask_gets_one_of_ones_where_no_text_is_padded():
    towers, ids = TwoTower(Scale(2.0)), torch.tensor([[1, 5]])
    assert towers("query", ids, None).tolist() == [[2.0, 10.0]]


def test_tied_towers_share_every_weight():
    towers = TwoTower(Scale(2.0))
    assert towers.tied and len(list(towers.parameters())) == 1
    query, document, mask = torch.tensor([[1]]), torch.tensor([[4]]), torch.tensor([[1]])
    (towers("query", query, mask) + towers("document", document, mask)).sum().backward()
    assert towers.queries.factor.grad.item() == 5.0


def test_untied_towers_start_equal_and_part():
    towers = TwoTower(Scale(2.0))
    towers.untie()
    towers.untie()
    assert not towers.tied and towers.documents.factor.item() == 2.0
    towers.queries.factor.data.fill_(5.0)
    assert towers.documents.factor.item() == 2.0


def test_a_frozen_tower_has_no_gradients_and_no_dropout():
    towers = TwoTower(nn.Sequential(Scale(2.0), nn.Dropout(0.5)), nn.Sequential(Scale(3.0), nn.Dropout(0.5)))
    towers.freeze("document")
    assert towers.trains("query") and not towers.trains("document")
    for training in (True, False, True):
        towers.train(training)
        assert towers.training == towers.queries[1].training == training and not towers.documents[1].training


def test_a_tied_tower_cannot_be_frozen_alone():
    with pytest.raises(
        ValueError, match="the document tower cannot be frozen alone, because the towers are tied"
    ):
        TwoTower(Scale(2.0)).freeze("document")
