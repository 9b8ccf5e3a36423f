"""Reproducible dropout: its masks are a function of a key. On a CPU they are drawn here.

torch draws a mask for dropout number by number with MKL, which took 15 % of a step in bf16 and 8 % in
fp32. Here 64 random bits make four numbers of a mask.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from pyserini_ance.random_streams import dropout_seed

CPU = torch.device("cpu")
LEVELS = 1 << 16  # a probability is rounded to a multiple of 1 / LEVELS
INTEGER_OF_SIZE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@contextmanager
def reproducible_dropout(
    *key: int | str, rank: int = 0, device: torch.device = CPU, is_recomputed: bool = False
) -> Iterator[None]:
    """Seed dropout on `device` from `key` (seed, stage, step, chunk, tower) and `rank`: torch's generators,
    which are restored on exit, and on a CPU one of its own, from which no other thread draws.

    Where the backward pass computes layers again (`recomputes`), torch draws the masks: that pass is outside
    of every mode, and has the generators as they were.
    """
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    is_ours = device.type == "cpu" and not is_recomputed
    seed = dropout_seed(*key, rank=rank)
    own = CpuDropout(torch.Generator().manual_seed(seed)) if is_ours else nullcontext()
    with torch.random.fork_rng(devices), own:
        # Not torch.manual_seed: as long as CUDA is not initialised, it formats the whole stack at every call
        # (0.1 ms, under pytest 0.8 ms).
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield


def recomputes(tower: nn.Module) -> bool:
    """Whether a model of transformers in `tower` has gradient checkpointing, as its config may say."""
    return any(getattr(module, "gradient_checkpointing", False) for module in tower.modules())


class CpuDropout(TorchFunctionMode):
    """Computes `dropout`, and `scaled_dot_product_attention` with dropout, on a CPU with its own masks.

    Each mask follows from one number of `generator` (None: torch's) and is the same on every processor. A
    probability p is rounded to a multiple of 2^-16, and what is kept is multiplied by 1 / (1 - p) of the
    rounded one, so that means are exact. Attention has scores and softmax in fp32 at least, and multiplies
    values in their precision, as fused attention does; a query that may see nothing gets a mean of all values
    rather than 0. Causal attention, attention with groups of heads or of three dimensions, dropout in place
    and other devices are left to torch.
    """

    def __init__(self, generator: torch.Generator | None = None):
        super().__init__()
        self._generator = generator

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        own = REPLACED.get(function)
        result = NotImplemented if own is None else own(self, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {})) if result is NotImplemented else result

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or inplace or not _is_ours(input, p):
            return NotImplemented
        return _Masked.apply(input, self._kept(input.shape, p), _factor(p))

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if is_causal or enable_gqa or query.dim() != 4 or not _is_ours(query, dropout_p):
            return NotImplemented
        if torch.is_autocast_enabled("cpu") and query.dtype != torch.float64:  # which casts like this
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = (each.to(dtype) for each in (query, key, value))
        wide = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast("cpu", enabled=False):
            scaled = query.to(wide) * (query.shape[-1] ** -0.5 if scale is None else scale)
            scores = scaled @ key.to(wide).transpose(-1, -2)
            if attn_mask is not None:  # of booleans, or of numbers: clamped, so that no sum overflows
                least = torch.finfo(wide).min / 2
                if attn_mask.dtype == torch.bool:
                    attn_mask = torch.zeros((), dtype=wide).masked_fill(~attn_mask, least)
                scores += attn_mask.to(wide).clamp(min=least)
            weights = scores.softmax(-1).to(value.dtype)
            masked = _Masked.apply(weights, self._kept(weights.shape, dropout_p), 1.0)
            return masked @ value * _factor(dropout_p)  # the output is smaller than the weights

    def _kept(self, shape: torch.Size, p: float) -> Tensor:
        """Which numbers of a tensor are kept (bool)."""
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=self._generator))
        numbers = shape.numel()
        drawn = np.random.SFC64(seed).random_raw(-(-numbers // 4)).astype("<u8", copy=False)
        return torch.from_numpy(drawn.view("<u2")[:numbers] >= _dropped(p)).view(shape)


REPLACED: dict[Any, Callable[..., Any]] = {
    functional.dropout: CpuDropout._dropout,
    functional.scaled_dot_product_attention: CpuDropout._attention,
}


def _dropped(p: float) -> int:
    """How many of the `LEVELS` are dropped."""
    return round(p * LEVELS)


def _factor(p: float) -> float:
    """What multiplies the numbers that are kept."""
    return LEVELS / (LEVELS - _dropped(p))


def _is_ours(input: Tensor, p: float) -> bool:
    """Whether some of `input` is dropped, but not all, and it is on a CPU."""
    return input.device.type == "cpu" and input.is_floating_point() and 0 < _dropped(p) < LEVELS


class _Masked(torch.autograd.Function):
    """input (any shape), kept (bool) -> input * factor where it is kept, else 0."""

    @staticmethod
    def forward(context: Any, input: Tensor, kept: Tensor, factor: float) -> Tensor:
        context.save_for_backward(kept)
        context.factor = factor
        # On a CPU this takes a fraction of the time of torch.where, or of a product with booleans.
        mask = kept.view(torch.int8).to(INTEGER_OF_SIZE[input.itemsize]).neg_()  # all bits, or none
        result = mask.bitwise_and_(input.contiguous().view(mask.dtype)).view(input.dtype)
        return result if factor == 1 else result.mul_(factor)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Any, None, None]:
        return _Masked.apply(gradients[0], context.saved_tensors[0], context.factor), None, None
