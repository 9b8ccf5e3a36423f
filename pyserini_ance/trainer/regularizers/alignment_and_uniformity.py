"""Alignment and uniformity: how far anchors are from their positives, and texts of one side from one another.

Source: Wang and Isola 2020, arXiv:2005.10242, alignment with exponent 2. The code of Li et al. 2021 (DANCE)
adds them to the loss, uniformity over queries and over documents.
"""

import math
from typing import Literal

import torch

from pyserini_ance.trainer.regularizers import Regularizer


class Alignment(Regularizer):
    """The mean squared distance of a pair."""

    kind: Literal["alignment"] = "alignment"

    def __call__(self, anchors: torch.Tensor, positives: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        return (anchors[pairs[:, 0]] - positives[pairs[:, 1]]).square().sum(1).mean()


class Uniformity(Regularizer):
    """log mean exp(-5 |x - y|^2) over all pairs of different texts, of the anchors plus of the positives;
    meant for unit vectors."""

    kind: Literal["uniformity"] = "uniformity"

    def __call__(self, anchors: torch.Tensor, positives: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        return uniformity(anchors) + uniformity(positives)


def uniformity(vectors: torch.Tensor, t: float = 5.0) -> torch.Tensor:
    """log mean exp(-t |x - y|^2) over all pairs of the vectors (N, D); 0 for a single one."""
    exponents = -t * torch.pdist(vectors).square()
    count = len(exponents)
    return torch.logsumexp(exponents, 0) - math.log(count) if count else vectors.sum() * 0
