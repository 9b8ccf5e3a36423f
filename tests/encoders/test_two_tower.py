import torch
from torch import nn

from pyserini_ance.encoders.two_tower import TwoTower


class Scale(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, ids, mask):
        return (ids * mask).float() * self.factor


def test_each_side_goes_through_its_tower():
    towers, ids, mask = TwoTower(Scale(2.0), Scale(3.0)), torch.tensor([[1, 5]]), torch.tensor([[1, 0]])
    assert not towers.tied and len(list(towers.parameters())) == 2
    assert towers("query", ids, mask).tolist() == [[2.0, 0.0]]
    assert towers("document", ids, mask).tolist() == [[3.0, 0.0]]


def test_tied_towers_share_every_weight():
    towers = TwoTower(Scale(2.0))
    assert towers.tied and len(list(towers.parameters())) == 1
    query, document, mask = torch.tensor([[1]]), torch.tensor([[4]]), torch.tensor([[1]])
    (towers("query", query, mask) + towers("document", document, mask)).sum().backward()
    assert towers.queries.factor.grad.item() == 5.0
