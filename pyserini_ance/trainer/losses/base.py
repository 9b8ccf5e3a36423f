"""Base classes of losses, and the pairs of a positive and a less relevant document of pairwise losses."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field, model_validator

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
    """Scores are multiplied by `scale` (1 / temperature; give one of the two)."""

    scale: float | None = Field(default=None, gt=0)
    """The factor of all scores; null: 1 / `temperature`."""
    temperature: float | None = Field(default=None, gt=0)
    """The divisor of all scores; null: 1 / `scale`."""

    @model_validator(mode="after")
    def has_one_factor(self):
        if self.scale is not None and self.temperature is not None:
            raise ValueError("give `scale` or `temperature` (= 1 / scale), not both")
        return self

    def scaled(self, scores: torch.Tensor) -> torch.Tensor:
        return scores * (self.scale or 1.0 / (self.temperature or 1.0))


class Scaled(Scaling, Loss):
    """A loss of scaled scores."""


class Pairwise:
    """A loss of `Pairs`.

    Its call also takes `max_positives`, the highest number of positives of an anchor under the mask: the host
    knows it from the batch's rows, and would otherwise wait for the device. None: it is counted.
    """


@dataclass(frozen=True)
class Pairs:
    """Pairs of a positive with a document of a lower label, for B anchors with n columns.

    positives: (B, P) columns, P the highest number of positives of an anchor.
    mask: (B, P, n) bool, the pairs that count.
    Source: Zhan et al. 2020, arXiv:2010.10469, Algorithm 1, line 7: all pairs with l_s > l_t.
    """

    positives: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def of(cls, labels: torch.Tensor, mask: torch.Tensor, max_positives: int | None = None) -> "Pairs":
        positive = (labels > 0) & mask
        if max_positives is None:
            max_positives = int(positive.sum(1).max())
        # An anchor with fewer positives gets other columns, which the mask excludes.
        is_positive, columns = positive.float().topk(max_positives, dim=1)
        lesser = labels[:, None, :] < labels.gather(1, columns)[:, :, None]
        return cls(columns, (is_positive > 0)[:, :, None] & lesser & mask[:, None, :])

    def of_positives(self, values: torch.Tensor) -> torch.Tensor:
        """(B, P, 1): the positives' values, of `values` (B, n)."""
        return values.gather(1, self.positives)[:, :, None]

    def differences(self, values: torch.Tensor) -> torch.Tensor:
        """(B, P, n): the positive's value minus the other document's, of `values` (B, n)."""
        return self.of_positives(values) - values[:, None, :]

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """(B,): the mean over an anchor's pairs of `values` (B, P, n); 0 for an anchor without pairs."""
        return mean_of(values, self.mask)
