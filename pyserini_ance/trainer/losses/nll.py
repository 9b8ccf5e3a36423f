"""Negative log likelihood of the positive against its negatives.

Source: Xiong et al. 2021, arXiv:2007.00808, Eq. 3 with the NLL of Karpukhin et al. 2020, arXiv:2004.04906,
Eq. 2.
"""

from typing import Literal

import torch
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import Scaled, below_highest, mean_of


class Nll(Scaled):
    """With several positives, the loss is the mean over them of each against the negatives alone."""

    kind: Literal["nll"] = "nll"

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.scaled(below_highest(scores, mask))
        positive = (labels > 0) & mask
        lowest = torch.finfo(scores.dtype).min
        negatives = torch.logsumexp(scores.masked_fill(positive | ~mask, lowest), dim=1, keepdim=True)
        return mean_of(softplus(negatives - scores), positive)
