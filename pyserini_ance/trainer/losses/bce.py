"""Binary cross-entropy: whether each document is relevant, independently of the others.

Source: one of the losses of Xiong et al. 2021, arXiv:2007.00808, Eq. 2, who give no formula for it; "not much
better" than NLL (section 6.3).
"""

from typing import Literal

import torch
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import Scaled, mean_of


class Bce(Scaled):
    """The scaled score is the logit.

    Half of the loss is the mean over the positives, half that over the negatives.

    So one positive weighs as much as all negatives together: with one of each this is the mean of the two
    pairs, and in a large pool the answer "nothing is relevant" does not pay. A score of 0 means as likely as
    not: where all scores lie far above it, as dot products of RoBERTa vectors do, the first steps only bring
    them down.
    """

    kind: Literal["bce"] = "bce"

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits, positive = self.scaled(scores), labels > 0
        each = softplus(torch.where(positive, -logits, logits))
        return (mean_of(each, positive & mask) + mean_of(each, ~positive & mask)) / 2
