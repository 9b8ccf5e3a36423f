"""Pairwise hinge: a positive should score higher than a negative by a margin.

Source: one of the losses of Xiong et al. 2021, arXiv:2007.00808, Eq. 2, who give no formula and no margin;
"not much better" than NLL (section 6.3). RepBERT (Zhan et al. 2020, arXiv:2006.15498) trains so on in-batch
negatives, with margin 1.
"""

from typing import Literal

import torch
from pydantic import Field

from pyserini_ance.trainer.losses.base import Loss, Pairs, Pairwise


class Hinge(Pairwise, Loss):
    """Mean over all pairs of a positive and a negative.

    `margin` is in units of the score: with cosines far below 1.
    """

    kind: Literal["hinge"] = "hinge"
    margin: float = Field(default=1.0, gt=0)
    """The margin between positive and negative, in units of the score; far below 1 for cosines."""

    def __call__(
        self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, max_positives: int | None = None
    ) -> torch.Tensor:
        pairs = Pairs.of(labels, mask, max_positives)
        return pairs.mean(torch.relu(self.margin - pairs.differences(scores)))
