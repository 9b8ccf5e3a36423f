"""Scaled: a loss of scores that are multiplied first, as cosines, which lie within [-1, 1], need it."""

import torch
from pydantic import Field, model_validator

from pyserini_ance.trainer.losses.loss import Loss


class Scaled(Loss):
    """Scores are multiplied by `scale` (1 / temperature; give one of the two)."""

    scale: float | None = Field(default=None, gt=0)
    temperature: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def has_one_factor(self):
        if self.scale is not None and self.temperature is not None:
            raise ValueError("give `scale` or `temperature` (= 1 / scale), not both")
        return self

    def scaled(self, scores: torch.Tensor) -> torch.Tensor:
        return scores * (self.scale or 1.0 / (self.temperature or 1.0))
