"""Margin-MSE: the student's margin between a positive and a negative equals the teacher's.

Source: Hofstätter et al. 2020, arXiv:2010.02666.
"""

from typing import Literal

import torch

from pyserini_ance.trainer.losses.base import DistillationLoss, Pairs, Pairwise, Scaling


class MarginMse(Pairwise, DistillationLoss, Scaling):
    """The mean squared difference of the margins, over all pairs of a positive and a negative.

    `scale` brings the student's scores to the size of the teacher's: a cosine cannot reach a logit's margin.
    """

    kind: Literal["margin_mse"] = "margin_mse"

    def __call__(
        self,
        scores: torch.Tensor,
        labels: torch.Tensor,
        mask: torch.Tensor,
        teacher: torch.Tensor,
        max_positives: int | None = None,
    ) -> torch.Tensor:
        pairs = Pairs.of((labels > 0).float(), mask, max_positives)
        teacher = teacher.masked_fill(~mask, 0.0)
        margins = self.scaled(pairs.differences(scores))
        return pairs.mean((margins - pairs.differences(teacher)).square())
