"""Negative log likelihood of the positive against its negatives.

Source: Xiong et al. 2021, arXiv:2007.00808, Eq. 3 with the NLL of Karpukhin et al. 2020, arXiv:2004.04906, Eq. 2.
"""

from typing import Literal

import torch
from pydantic import Field, model_validator

from pyserini_ance.trainer.losses.loss import Loss


class Nll(Loss):
    """Scores are multiplied by `scale` (1 / temperature; give one of the two).

    With several positives, each stands against the negatives alone, and their mean is taken.
    """

    kind: Literal["nll"] = "nll"
    scale: float | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def has_one_factor(self):
        if self.scale is not None and self.temperature is not None:
            raise ValueError("give `scale` or `temperature` (= 1 / scale), not both")
        return self

    @property
    def factor(self) -> float:
        return self.scale or 1.0 / (self.temperature or 1.0)

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = scores * self.factor
        positive = (labels > 0) & mask
        lowest = torch.finfo(scores.dtype).min
        negatives = torch.logsumexp(scores.masked_fill(positive | ~mask, lowest), dim=1, keepdim=True)
        each = torch.logaddexp(scores, negatives) - scores
        return each.masked_fill(~positive, 0.0).sum(1) / positive.sum(1)
