"""RankNet: the logistic loss of each relevant document against each irrelevant one, wherever they rank.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Eq. 1, after Burges 2010.
"""

from typing import Literal

import torch
from torch.nn.functional import softplus

from pyserini_ance.trainer.losses.base import Pairs, Pairwise, Scaled


class RankNet(Pairwise, Scaled):
    """Mean over the pairs: the paper does not say sum or mean, the code of its successor ADORE
    (jingtaozhan/DRhard) takes the mean."""

    kind: Literal["ranknet"] = "ranknet"

    def __call__(
        self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, max_positives: int | None = None
    ) -> torch.Tensor:
        pairs = Pairs.of(labels, mask, max_positives)
        return pairs.mean(softplus(-self.scaled(pairs.differences(scores))))
