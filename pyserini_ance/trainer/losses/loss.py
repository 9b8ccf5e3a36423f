"""Loss: what a recipe names under `loss:`."""

from abc import abstractmethod

import torch

from pyserini_ance.recipe.parts import Part


class Loss(Part):
    @abstractmethod
    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """scores (B, n) float32, labels (B, n) float32 (> 0: positive), mask (B, n) bool (False: ignored) -> (B,).

        Every anchor has a positive under the mask.
        """
