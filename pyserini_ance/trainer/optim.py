"""Optimiser and learning rate. The rate is a function of the step alone, so a resumed run needs no scheduler state."""

import math
from functools import partial

import torch
from torch import nn

from pyserini_ance.recipe.stage import Optimizer, Stage
from pyserini_ance.trainer.lamb import Lamb

OPTIMIZERS = {"adamw": partial(torch.optim.AdamW, fused=True), "lamb": Lamb}
# The share of the rate, by the share of the steps after warm-up that is left (1 to 0).
# Differs from microsoft/ANCE: its cosine ends at 1e-8, ours, as its linear decay, at 0.
DECAYS = {"linear": lambda left: left, "cosine": lambda left: (1 - math.cos(math.pi * left)) / 2, "constant": lambda left: 1.0}


def build_optimizer(module: nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """Vectors of weights (biases, LayerNorm) are not decayed."""
    trained = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return OPTIMIZERS[settings.kind](groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.eps)


def learning_rate(stage: Stage, step: int) -> float:
    """The rate of step `step` (from 0): linear warm-up from 0, then decay to 0 at the schedule's horizon, perhaps in cycles."""
    settings, place = stage.optimizer, stage.schedule_step(step)
    if place < settings.warmup_steps:
        return settings.learning_rate * place / settings.warmup_steps
    left = max(0.0, (stage.horizon_steps - place) / max(1, stage.horizon_steps - settings.warmup_steps))
    return settings.learning_rate * DECAYS[settings.decay](left)
