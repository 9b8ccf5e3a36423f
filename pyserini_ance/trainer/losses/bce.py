"""Binary cross-entropy: whether each document is relevant, by labels or by a teacher's probabilities."""

from typing import Literal

import torch
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import DistillationLoss, Scaled, Scaling, mean_of


class Bce(Scaled):
    """The scaled score is the logit.

    Half of the loss is the mean over the positives, half that over the negatives.

    So one positive weighs as much as all negatives together: with one of each this is the mean of the two
    pairs, and in a large pool the answer "nothing is relevant" does not pay. A score of 0 means as likely as
    not: where all scores lie far above it, as dot products of RoBERTa vectors do, the first steps only bring
    them down.
    Source: one of the losses of Xiong et al. 2021, arXiv:2007.00808, Eq. 2, who give no formula for it; "not
    much better" than NLL (section 6.3).
    """

    kind: Literal["bce"] = "bce"

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits, positive = self.scaled(scores), labels > 0
        each = softplus(torch.where(positive, -logits, logits))
        return (mean_of(each, positive & mask) + mean_of(each, ~positive & mask)) / 2


class SoftBce(DistillationLoss, Scaling):
    """The scaled score plus `bias` is the logit. The sigmoid of the teacher's score, a logit of a
    cross-encoder, is the probability that the document is relevant. The loss is the mean over candidates.

    Source: Tsirigotis et al. 2025, arXiv:2508.06781 (BiXSE).
    """

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
