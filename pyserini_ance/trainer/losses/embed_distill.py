"""Distillation of vectors: a text's vector follows the vector that a teacher gives the same text."""

from typing import ClassVar, Literal

from torch import Tensor
from torch.nn.functional import cosine_similarity

from pyserini_ance.recipe.components import Component


class EmbedDistill(Component):
    """The distance of the retriever's vectors from those of a teacher of kind `encoder`, encoded once a run.

    No negatives are needed. sentence-transformers has it as EmbedDistillLoss and MSELoss.
    Source: Kim et al. 2023, arXiv:2301.12005 (EmbedDistill); Vujanic and Rueckstiess 2025, arXiv:2509.12539
    (LEAF), whose small query encoder searches the vectors of its teacher.
    """

    needs_teacher: ClassVar[bool] = True

    kind: Literal["embed_distill"] = "embed_distill"
    distance_metric: Literal["cosine", "l2", "mse"] = "cosine"
    """1 - cosine, the Euclidean distance, or the mean of squared differences."""
    texts: Literal["anchors", "candidates"] = "anchors"
    """The texts that have a loss: the term's anchors, or their positives and negatives."""

    def __call__(self, vectors: Tensor, teacher: Tensor) -> Tensor:
        """vectors (..., D) float32, teacher (..., D) float32 -> (...)."""
        if self.distance_metric == "cosine":
            return 1 - cosine_similarity(vectors, teacher, dim=-1)
        if self.distance_metric == "l2":
            return (vectors - teacher).norm(dim=-1)
        return (vectors - teacher).square().mean(-1)
