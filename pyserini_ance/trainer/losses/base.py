"""Base classes of losses."""

from abc import abstractmethod
from typing import ClassVar

import torch
from pydantic import Field

from pyserini_ance.recipe.components import Component


class Loss(Component):
    """A loss per anchor. `graded`: its labels are relevance grades; otherwise all positives have label 1."""

    graded: ClassVar[bool] = False
    needs_teacher: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """scores (B, n) float32, labels (B, n) float32 (> 0: positive; greater: more relevant), mask (B, n)
        bool (False: ignored) -> (B,).

        Every anchor has a positive under the mask. Finite scores give finite gradients; the order of columns
        does not matter.
        """


class DistillationLoss(Component):
    """A loss per anchor between the retriever's scores and a teacher's, for terms with a `teacher`."""

    graded: ClassVar[bool] = False
    needs_teacher: ClassVar[bool] = True

    @abstractmethod
    def __call__(
        self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, teacher: torch.Tensor
    ) -> torch.Tensor:
        """scores (B, n) float32, labels (B, n) float32 (> 0: positive), mask (B, n) bool (False: ignored),
        teacher (B, n) float32 -> (B,).

        A column under the mask has a score of the teacher. An anchor may have none.
        """


def mean_of(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return the means (B,) of the `chosen` entries of each anchor's `values` (B, ...); 0 without entries."""
    total = values.masked_fill(~chosen, 0.0).flatten(1).sum(1)
    return total / chosen.flatten(1).sum(1).clamp(min=1)


def below_highest(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return scores (B, n) minus the highest under each anchor's mask; no gradient goes through that one.

    Around 700, where dot products of RoBERTa vectors lie, float32 has steps of 6e-5. Differences of two such
    scores are exact, and sums and scales of the differences nearly so.
    """
    hidden = scores.detach().masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores - hidden.amax(1, keepdim=True)


class Scaling(Component):
    """Scores are multiplied by `scale`."""

    scale: float = Field(default=1.0, gt=0)
    """The factor of all scores: 1 / temperature."""

    def scaled(self, scores: torch.Tensor) -> torch.Tensor:
        return scores * self.scale


class Scaled(Scaling, Loss):
    """A loss of scaled scores."""
