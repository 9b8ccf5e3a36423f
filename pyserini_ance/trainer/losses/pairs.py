"""Pairs: each positive of an anchor beside each document that is less relevant than it."""

from dataclasses import dataclass

import torch

from pyserini_ance.trainer.losses.loss import mean_of


@dataclass(frozen=True)
class Pairs:
    """Of B anchors with n columns and at most P positives: `positives` (B, P) are columns, `there` (B, P, n) says which pairs count.

    Source: Zhan et al. 2020, arXiv:2010.10469, Algorithm 1, line 7: all pairs with l_s > l_t.
    """

    positives: torch.Tensor
    there: torch.Tensor

    @classmethod
    def of(cls, labels: torch.Tensor, mask: torch.Tensor) -> "Pairs":
        positive = (labels > 0) & mask
        most = int(positive.sum(1).max())
        is_positive, columns = positive.float().topk(most, dim=1)  # where an anchor has fewer, other columns fill up
        lesser = labels[:, None, :] < labels.gather(1, columns)[:, :, None]
        return cls(columns, (is_positive > 0)[:, :, None] & lesser & mask[:, None, :])

    def of_positives(self, values: torch.Tensor) -> torch.Tensor:
        """(B, P, 1) of (B, n)."""
        return values.gather(1, self.positives)[:, :, None]

    def differences(self, values: torch.Tensor) -> torch.Tensor:
        """(B, P, n): what the positive has of `values` (B, n) more than the other document."""
        return self.of_positives(values) - values[:, None, :]

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """(B,) of (B, P, n); 0 for an anchor without pairs."""
        return mean_of(values, self.there)
