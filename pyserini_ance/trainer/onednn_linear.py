"""Linear layers of oneDNN for training in fp32 on AMD processors, where torch multiplies with MKL.

oneDNN's products are 1.1 times as fast there, and add the bias themselves; a step of MiniLM is 1.08 times as
fast (docs/lab-notes/speed.md).
"""

import logging
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from pyserini_ance.encoders.hardware import cpu_is_amd

log = logging.getLogger(__name__)
PROBES = ((1, 64, 32), (48, 96, 40), (33, 40, 200))  # products as (rows, inputs, outputs)
ROUNDING = 2**-18  # by which results may differ from nn.Linear's


class OneDnnLinear(nn.Linear):
    """A linear layer whose products in fp32 are oneDNN's, but for the weight's gradient, where MKL is faster.

    Under autocast, in other precisions and on other devices it is nn.Linear.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """input (..., in_features) -> (..., out_features)."""
        is_fp32_on_cpu = input.device.type == "cpu" and input.dtype == torch.float32
        if not is_fp32_on_cpu or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        output: torch.Tensor = _Linear.apply(input, self.weight, self.bias)
        return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> Any:
        ctx.save_for_backward(input, weight)
        return _product(input, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        needs_input, needs_weight, needs_bias = ctx.needs_input_grad
        by_row = gradient.reshape(-1, gradient.shape[-1])
        return (
            _product(gradient, weight.t()) if needs_input else None,
            by_row.t() @ input.reshape(-1, input.shape[-1]) if needs_weight else None,
            by_row.sum(0) if needs_bias else None,
        )


def _product(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """functional.linear by the operator of `PackedLinear`, which is private, with a weight of any strides."""
    output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return output


def use_onednn_linears(towers: nn.Module) -> None:
    """Make the linear layers of towers on a CPU `OneDnnLinear`s, in place, where `onednn_trains_linears`."""
    if onednn_trains_linears():
        for module in towers.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDnnLinear


@cache
def onednn_trains_linears() -> bool:
    """Whether this is an AMD processor, and this torch has the operator with nn.Linear's results. The log
    says so."""
    if not cpu_is_amd():
        return False
    try:
        agrees = all(_agrees(*shape) for shape in PROBES)
    except (AttributeError, RuntimeError) as error:  # no such operator; one that this processor lacks
        log.info("training in fp32: oneDNN does not multiply linear layers (%s)", error)
        return False
    if not agrees:
        log.warning("training in fp32: oneDNN gives other results, so it does not multiply linear layers")
    return agrees


def _agrees(rows: int, inputs: int, outputs: int) -> bool:
    """Whether a layer's output and gradients agree within rounding."""
    numbers = torch.arange(max(rows, outputs) * max(inputs, outputs)).double().sin().float()
    given, weight, bias, gradient = (
        numbers[: height * width].view(height, width)
        for height, width in ((rows, inputs), (outputs, inputs), (1, outputs), (rows, outputs))
    )
    results = []
    for linear in (functional.linear, _Linear.apply):
        leaves = [each.clone().requires_grad_() for each in (given, weight, bias[0])]
        output = linear(*leaves)
        output.backward(gradient)
        results.append([output.detach(), *(leaf.grad for leaf in leaves)])
    return all(
        torch.allclose(own, expected, rtol=ROUNDING, atol=ROUNDING)
        for expected, own in zip(*results, strict=True)
    )
