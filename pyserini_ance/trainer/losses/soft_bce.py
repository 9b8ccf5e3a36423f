"""Binary cross-entropy with a teacher's probabilities.

Source: Tsirigotis et al. 2025, arXiv:2508.06781 (BiXSE).
"""

from typing import Literal

import torch
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import DistillationLoss, Scaling, mean_of


class SoftBce(DistillationLoss, Scaling):
    """The scaled score plus `bias` is the logit. The sigmoid of the teacher's score, a logit of a
    cross-encoder, is the probability that the document is relevant. The loss is the mean over candidates."""

    # Differs from the paper: its teacher gives probabilities, its bias is learned, and in-batch negatives,
    # with probability 0, are part of it. Here these are a term of their own with the loss `bce`.
    kind: Literal["soft_bce"] = "soft_bce"
    bias: float = 0.0
    """What is added to the scaled scores."""

    def __call__(
        self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, teacher: torch.Tensor
    ) -> torch.Tensor:
        logits = self.scaled(scores) + self.bias
        return mean_of(softplus(logits) - teacher.masked_fill(~mask, 0.0).sigmoid() * logits, mask)
