"""How a stage updates weights: the optimizer, its learning rate, and the average of weights at the end."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from pyserini_ance.recipe.components import Settings


class Optimizer(Settings):
    """AdamW, or LAMB as in the papers (trainer/optim.py); their code runs LAMB with `weight_decay: 0`."""

    kind: Literal["adamw", "lamb"] = "adamw"
    """The algorithm."""
    learning_rate: float = Field(gt=0)
    """The peak of the learning rate schedule."""
    weight_decay: float = Field(default=0.01, ge=0)
    """The weight decay; biases and layer norms are exempt."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients with a greater total norm are scaled down to it."""


class LrSchedule(Settings):
    """The learning rate of a stage: it rises from 0 during the warm-up, then falls to 0 at the end of the
    schedule.

    With `kind: constant` it does not fall. The schedule may be longer than the stage, so that several stages
    share one.
    """

    kind: Literal["linear", "cosine", "constant"] = "linear"
    """The shape of the decay."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps in which the rate rises linearly from 0."""
    total_steps: PositiveInt | None = None
    """Length of the schedule; null: up to the end of the stage."""
    offset_steps: int = Field(default=0, ge=0)
    """Steps of the schedule that earlier stages have used. The stage that this one starts from must end with
    its last checkpoint (`evaluate.keep_best: false`)."""


class Average(Settings):
    """The result of a stage is a weighted mean of weights, in place of the weights of one checkpoint.

    The mean is taken when the stage ends, of the trained weights: the stage's best trained checkpoint with
    `evaluate.keep_best`, else its last one, or the mean of several. With `evaluate.keep_best` the mean is one
    more candidate: it is evaluated on dev, and is the result if no checkpoint, nor the start, is better.
    """

    start: float | None = Field(default=None, gt=0, lt=1)
    """The share of the weights that the stage started from; the trained weights have the rest (Xiao et al.
    2023, LM-Cocktail, arXiv:2311.13534). Null: none."""
    checkpoints: int | None = Field(default=None, ge=2)
    """The trained weights are the mean of the last this many checkpoints that dev evaluates; null: those of
    one checkpoint."""

    @model_validator(mode="after")
    def check_not_empty(self) -> "Average":
        if self.start is None and self.checkpoints is None:
            raise ValueError(
                "set `start` (a share of the initial weights), `checkpoints` (a number), or both"
            )
        return self
