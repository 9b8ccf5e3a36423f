"""Listwise distillation: the student's distribution over an anchor's candidates follows the teacher's.

Source: Hinton et al. 2015, arXiv:1503.02531; for retrieval Wang et al. 2022, arXiv:2207.02578 (SimLM).
"""

from typing import Literal

import torch
from pydantic import Field

from pyserini_ance.trainer.losses.base import DistillationLoss, Scaling, below_highest


class Kl(DistillationLoss, Scaling):
    """KL(teacher || student) over the candidates that the teacher has scored, positives included.

    An anchor with fewer than two such candidates has loss 0. Hinton et al. multiply it by the squared
    temperature; here the term's `weight` does that.
    """

    kind: Literal["kl"] = "kl"
    teacher_temperature: float = Field(default=1.0, gt=0)
    """The divisor of the teacher's scores; below 1 it sharpens scores between 0 and 1."""

    def __call__(
        self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, teacher: torch.Tensor
    ) -> torch.Tensor:
        lowest = torch.finfo(scores.dtype).min
        student = self.scaled(below_highest(scores, mask))
        target = below_highest(teacher, mask) / self.teacher_temperature
        log_student, log_teacher = (x.masked_fill(~mask, lowest).log_softmax(1) for x in (student, target))
        divergence = (log_teacher.exp() * (log_teacher - log_student)).masked_fill(~mask, 0.0).sum(1)
        return divergence * (mask.sum(1) > 1)
