"""Alignment: how far anchors are from their positives.

Source: Wang and Isola 2020, arXiv:2005.10242, with exponent 2. The code of Li et al. 2021 (DANCE) adds it to
the loss.
"""

from typing import Literal

import torch

from pyserini_ance.trainer.regularizers import Regularizer


class Alignment(Regularizer):
    """The mean squared distance of a pair."""

    kind: Literal["alignment"] = "alignment"

    def __call__(self, anchors: torch.Tensor, positives: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        return (anchors[pairs[:, 0]] - positives[pairs[:, 1]]).square().sum(1).mean()
