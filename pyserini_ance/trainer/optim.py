"""Optimizers and the learning rate, a function of the step alone: a resumed run needs no scheduler state.

`Lamb` is LAMB as in the code of the papers, which differs from what libraries offer under that name.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pyserini_ance.recipe.stage import Optimizer, Stage

LARGEST_NORM = 10.0  # of a weight tensor; the paper leaves the bound open, the code does not


class Lamb(torch.optim.Optimizer):
    """Moves each tensor by `lr` times its norm (at most `LARGEST_NORM`) in the direction of Adam's step.

    Adam's step is without bias correction and includes weight decay. With a rate of 1e-6, a matrix of norm 10
    or less changes by a millionth of its norm per step. A tensor of zeros moves by Adam's step itself.
    """

    def __init__(self, params: Iterable[dict[str, Any]], lr: float):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # gradients are computed before
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            # On a GPU one operator serves all parameters. A CPU has nothing to launch, and temporary tensors
            # of one parameter's size stay in its cache.
            on_gpu = bool(parameters) and parameters[0].device.type != "cpu"
            for together in [parameters] if on_gpu else [[parameter] for parameter in parameters]:
                self._move(together, group)

    def _move(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        betas, gradients = group["betas"], [p.grad for p in parameters if p.grad is not None]
        moments = []
        for name in ("exp_avg", "exp_avg_sq"):  # torch's names, as checkpoints have them
            for parameter in parameters:
                if name not in (state := self.state[parameter]):
                    state[name] = torch.zeros_like(parameter)
            moments.append([self.state[parameter][name] for parameter in parameters])
        first, second = moments
        torch._foreach_lerp_(first, gradients, 1 - betas[0])
        torch._foreach_mul_(second, betas[1])
        torch._foreach_addcmul_(second, gradients, gradients, value=1 - betas[1])
        updates = torch._foreach_sqrt(second)
        torch._foreach_add_(updates, group["eps"])
        # One tensor's quotient replaces the divisor: on CPU, allocating another one of an embedding's size
        # takes most of the time. No operator divides many tensors without new ones.
        if len(parameters) == 1:
            torch.div(first[0], updates[0], out=updates[0])
        else:
            updates = torch._foreach_div(first, updates)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        # Trust ratios as tensors without dimensions, so that nothing waits for the GPU.
        norms = torch.stack(torch._foreach_norm(parameters))
        lengths = torch.stack(torch._foreach_norm(list(updates)))
        ratios = torch.where((norms > 0) & (lengths > 0), norms.clamp(max=LARGEST_NORM) / lengths, 1.0)
        torch._foreach_addcmul_(parameters, updates, ratios.unbind(), value=-group["lr"])


class AdamW(torch.optim.AdamW):
    """torch's AdamW, which on a machine with a GPU asks it about graph captures even in steps on the CPU."""

    def _accelerator_graph_capture_health_check(self) -> None:
        if any(parameter.is_cuda for group in self.param_groups for parameter in group["params"][:1]):
            super()._accelerator_graph_capture_health_check()


def adamw_8bit(groups: Iterable[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
    from torchao.optim import AdamW8bit

    return AdamW8bit(groups, lr=lr)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": lambda groups, lr: AdamW(groups, lr=lr, fused=True),
    "adamw_8bit": adamw_8bit,
    "lamb": Lamb,
}
# The share of the rate, by the share of the steps after warm-up that is left (1 to 0).
# Differs from microsoft/ANCE: its cosine ends at 1e-8, ours, as its linear decay, at 0.
DECAYS = {
    "linear": lambda left: left,
    "cosine": lambda left: (1 - math.cos(math.pi * left)) / 2,
    "constant": lambda left: 1.0,
}


def build_optimizer(module: torch.nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """Build the optimizer of a stage. Weights that are vectors (biases, LayerNorm) do not decay."""
    trained = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return OPTIMIZERS[settings.kind](groups, lr=settings.learning_rate)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of the next step; what compiles its step has the rate in a tensor."""
    for group in optimizer.param_groups:
        group["lr"] = torch.full_like(group["lr"], rate) if isinstance(group["lr"], torch.Tensor) else rate


def learning_rate(stage: Stage, step: int) -> float:
    """Return the rate of step `step` (from 0): linear warm-up from 0, then decay to 0 at the horizon."""
    rate, schedule = stage.optimizer.learning_rate, stage.lr_schedule
    position = schedule.offset_steps + step
    if position < schedule.warmup_steps:
        return rate * position / schedule.warmup_steps
    left = max(0.0, (stage.horizon_steps - position) / max(1, stage.horizon_steps - schedule.warmup_steps))
    return rate * DECAYS[schedule.kind](left)
