"""Loss: what a recipe names under `loss:`."""

from abc import abstractmethod
from typing import ClassVar

import torch

from pyserini_ance.recipe.parts import Part


class Loss(Part):
    """`graded`: it tells positives by their grades; for others all are 1."""

    graded: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """scores (B, n) float32, labels (B, n) float32 (> 0: positive; greater: more relevant), mask (B, n) bool (False: ignored) -> (B,).

        Every anchor has a positive under the mask. Finite scores give finite gradients; the order of columns does not matter.
        """


def mean_of(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """(B,) means of what is `chosen` of each anchor's `values` (B, ...); 0 for an anchor with nothing."""
    total = values.masked_fill(~chosen, 0.0).flatten(1).sum(1)
    return total / chosen.flatten(1).sum(1).clamp(min=1)
