"""Negative log likelihood of positives against their negatives, one by one or jointly."""

from typing import Literal

import torch
from pydantic import Field
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import Scaled, below_highest, mean_of


class Nll(Scaled):
    """With several positives, the loss is the mean over them of each against the negatives alone.

    Source: Xiong et al. 2021, arXiv:2007.00808, Eq. 3 with the NLL of Karpukhin et al. 2020,
    arXiv:2004.04906, Eq. 2.
    """

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


class LsePair(Scaled):
    """All pairs of a positive and a negative in one logarithm: log(1 + sum of exp(negative - positive)).

    The worst pairs weigh most. With one positive this is `nll`.
    Source: Wang et al. 2026, arXiv:2602.12727 (LSEPair).
    """

    kind: Literal["lse_pair"] = "lse_pair"

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores, lowest = self.scaled(below_highest(scores, mask)), torch.finfo(scores.dtype).min / 2
        positives = (-scores).masked_fill((labels <= 0) | ~mask, lowest).logsumexp(1)
        negatives = scores.masked_fill((labels > 0) | ~mask, lowest).logsumexp(1)
        return softplus(positives + negatives)
