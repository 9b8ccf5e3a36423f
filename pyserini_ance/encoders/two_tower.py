"""The module that is trained: a query tower and a document tower, which may be one."""

import torch
from torch import nn

from pyserini_ance.encoders.tokenization import Side


class TwoTower(nn.Module):
    """One module for both sides and one forward a chunk, which data-parallel wrapping needs.

    `documents=None` ties the towers: both sides share every weight.
    """

    def __init__(self, queries: nn.Module, documents: nn.Module | None = None):
        super().__init__()
        self.queries = queries
        self.documents = queries if documents is None else documents

    @property
    def tied(self) -> bool:
        return self.documents is self.queries

    def forward(self, side: Side, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """ids (B, L), mask (B, L) -> vectors (B, D) float32."""
        return (self.queries if side == "query" else self.documents)(ids, mask)
