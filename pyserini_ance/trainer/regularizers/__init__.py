"""Regularizers: what a term asks of the vectors themselves; their base class."""

from abc import abstractmethod

import torch

from pyserini_ance.recipe.components import Component

SHARED_FILES = dict.fromkeys(("alignment", "uniformity"), "alignment_and_uniformity")


class Regularizer(Component):
    """A loss of the vectors of anchors and positives, without negatives."""

    @abstractmethod
    def __call__(self, anchors: torch.Tensor, positives: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """anchors (A, D) and positives (P, D) float32, each text of the step once; pairs (N, 2) int64,
        positions of an anchor and its positive -> scalar.

        Each passage of a document in several passages (MaxP) is a text; a pair has its best for the query.
        """
