"""The module that is trained: a query tower and a document tower, which may be one."""

import copy

import torch
from torch import nn

from pyserini_ance.data.collection import SIDES, Side


class TwoTower(nn.Module):
    """One module for both sides and one forward a chunk, which data-parallel wrapping needs.

    `documents=None` ties the towers: both sides share every weight. A frozen tower neither trains nor drops anything out.
    """

    def __init__(self, queries: nn.Module, documents: nn.Module | None = None):
        super().__init__()
        self.queries = queries
        self.documents = queries if documents is None else documents

    @property
    def tied(self) -> bool:
        return self.documents is self.queries

    def tower(self, side: Side) -> nn.Module:
        return self.queries if side == "query" else self.documents

    def untie(self) -> None:
        """Give documents a tower of their own, for now with equal weights."""
        if self.tied:
            self.documents = copy.deepcopy(self.queries)

    def freeze(self, side: Side) -> None:
        """No gradients and no dropout for the tower of `side`. Raises ValueError when the other side shares it."""
        if self.tied:
            raise ValueError(f"the {side} tower cannot be frozen alone: the towers are tied; untie them first")
        self.tower(side).requires_grad_(False)
        self.train(self.training)

    def trains(self, side: Side) -> bool:
        return any(parameter.requires_grad for parameter in self.tower(side).parameters())

    def train(self, mode: bool = True) -> "TwoTower":
        super().train(mode)
        for side in SIDES:
            if not self.trains(side):
                self.tower(side).eval()
        return self

    def forward(self, side: Side, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """ids (B, L), mask (B, L) -> vectors (B, D) float32."""
        return self.tower(side)(side, ids, mask)
