"""Negative log likelihood of the positive against its negatives.

Source: Xiong et al. 2021, arXiv:2007.00808, Eq. 3 with the NLL of Karpukhin et al. 2020, arXiv:2004.04906,
Eq. 2.
"""

from typing import Literal

import torch
from pydantic import Field
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import Scaled, below_highest, mean_of


class Nll(Scaled):
    """With several positives, the loss is the mean over them of each against the negatives alone."""

    kind: Literal["nll"] = "nll"
    hardness: float = Field(default=0.0, ge=0)
    """A negative counts exp(`hardness` * its score) times, without a gradient through this weight; for scores
    of unit vectors. 9 in LLaVE (Lan et al. 2025, arXiv:2503.04812, Eq. 5), 5 in EmbeddingGemma."""

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = self.hardness * scores.detach()
        scores = self.scaled(below_highest(scores, mask))
        positive = (labels > 0) & mask
        lowest = torch.finfo(scores.dtype).min
        logits = scores + weights if self.hardness else scores
        negatives = torch.logsumexp(logits.masked_fill(positive | ~mask, lowest), dim=1, keepdim=True)
        return mean_of(softplus(negatives - scores), positive)
