"""Optimiser and learning rate. The rate is a function of the step alone, so a resumed run needs no scheduler state."""

import torch
from torch import nn

from pyserini_ance.recipe.models import Optimizer, Stage


def build_optimizer(module: nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """AdamW; vectors of weights (biases, LayerNorm) are not decayed. Fused where torch offers it."""
    trained = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.eps, fused=True)


def learning_rate(stage: Stage, step: int) -> float:
    """The rate of step `step` (from 0): linear warm-up from 0, then linear decay to 0 at the schedule's horizon."""
    settings = stage.optimizer
    if step < settings.warmup_steps:
        return settings.learning_rate * step / settings.warmup_steps
    if settings.decay == "constant":
        return settings.learning_rate
    horizon = stage.schedule_steps or stage.steps
    return settings.learning_rate * max(0.0, (horizon - step) / max(1, horizon - settings.warmup_steps))
