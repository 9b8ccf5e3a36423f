"""All pairs of a positive and a negative in one logarithm: several positives jointly.

Source: Wang et al. 2026, arXiv:2602.12727 (LSEPair).
"""

from typing import Literal

import torch
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import Scaled, below_highest


class LsePair(Scaled):
    """log(1 + sum of exp(negative - positive) over all pairs): the worst pairs weigh most. With one positive
    this is `nll`."""

    kind: Literal["lse_pair"] = "lse_pair"

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores, lowest = self.scaled(below_highest(scores, mask)), torch.finfo(scores.dtype).min / 2
        positives = (-scores).masked_fill((labels <= 0) | ~mask, lowest).logsumexp(1)
        negatives = scores.masked_fill((labels > 0) | ~mask, lowest).logsumexp(1)
        return softplus(positives + negatives)
