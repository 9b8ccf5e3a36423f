"""Dropout that falls the same again: its masks are a function of a key, and on a CPU drawn here.

torch draws a mask for dropout number by number with MKL, which took a tenth of a step in fp32 and a seventh
in bf16 (docs/lab-notes/speed.md). Here 64 random bits make four numbers of a mask.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from pyserini_ance.random_streams import dropout_seed

CPU = torch.device("cpu")
STEPS = 1 << 16  # a probability is rounded to a multiple of 1 / STEPS
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a number


@contextmanager
def reproducible_dropout(*key: int | str, rank: int = 0, device: torch.device = CPU) -> Iterator[None]:
    """Seed dropout on `device` from `key` (seed, stage, step, chunk, tower) and `rank`, and torch's
    generators, which are restored on exit."""
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        seed = dropout_seed(*key, rank=rank)
        # Not torch.manual_seed: as long as CUDA is not initialised, it formats the whole stack at every call
        # (0.1 ms, under pytest 0.8 ms).
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
            yield
        else:
            with CpuDropout(seed):
                yield


class CpuDropout(TorchFunctionMode):
    """Computes `dropout`, and `scaled_dot_product_attention` with dropout, on a CPU with masks of its own.

    The masks are a function of `seed` and of the order of calls, on every processor. A probability is rounded
    to a multiple of 2^-16, and what is kept is scaled by the rounded one, so that means are exact. Attention
    is torch's on a CPU, product by product, except that a query that may see nothing gets a mean of all
    values rather than 0. What is not on a CPU, causal attention, attention with groups of heads, and dropout
    in place are left to torch.
    """

    def __init__(self, seed: int):
        super().__init__()
        self._random = np.random.Generator(np.random.SFC64(seed))

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        own = OWN.get(function)
        result = NotImplemented if own is None else own(self, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {})) if result is NotImplemented else result

    def _dropout(
        self, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Any:
        if not training or inplace or not _drops(input, p):
            return NotImplemented
        kept, scale = self._kept(input.shape, p)
        return _Masked.apply(input, kept, scale)

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if is_causal or enable_gqa or query.dim() != 4 or not _drops(query, dropout_p):
            return NotImplemented
        if torch.is_autocast_enabled("cpu"):  # which would cast the inputs of attention
            dtype = torch.get_autocast_dtype("cpu")
            query, key, value = (each.to(dtype) for each in (query, key, value))
        scores = query * (query.shape[-1] ** -0.5 if scale is None else scale) @ key.transpose(-1, -2)
        if attn_mask is not None:
            scores += _bias(attn_mask, scores.dtype)
        weights = scores.softmax(-1)
        kept, factor = self._kept(weights.shape, dropout_p)
        # The factor is applied to the output, which is smaller.
        return _Masked.apply(weights, kept, 1.0) @ value * factor

    def _kept(self, shape: torch.Size, p: float) -> tuple[torch.Tensor, float]:
        """Which numbers of a tensor are kept (bool), and the factor of those."""
        dropped, numbers = round(p * STEPS), shape.numel()
        drawn = self._random.integers(1 << 64, size=-(-numbers // 4), dtype=np.uint64)
        kept = drawn.view(np.uint16)[:numbers] >= dropped
        return torch.from_numpy(kept).view(shape), STEPS / (STEPS - dropped)


OWN: dict[Any, Callable[..., Any]] = {
    functional.dropout: CpuDropout._dropout,
    functional.scaled_dot_product_attention: CpuDropout._attention,
}


def _drops(input: torch.Tensor, p: float) -> bool:
    """Whether any of `input` is dropped, but not all, and it is on a CPU."""
    return input.device.type == "cpu" and input.is_floating_point() and 0 < round(p * STEPS) < STEPS


def _bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to scores: for a mask of booleans 0 where it is true; nowhere so low that a sum with a
    score is infinite."""
    least = torch.finfo(dtype).min / 2
    if mask.dtype == torch.bool:
        return torch.zeros((), dtype=dtype).masked_fill(~mask, least)
    return mask.to(dtype).clamp(min=least)


class _Masked(torch.autograd.Function):
    """input (any shape), kept (bool) -> input * factor where it is kept, else 0."""

    @staticmethod
    def forward(context: Any, input: torch.Tensor, kept: torch.Tensor, factor: float) -> torch.Tensor:
        context.save_for_backward(kept)
        context.factor = factor
        return _masked(input, kept, factor)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _masked(gradients[0], context.saved_tensors[0], context.factor), None, None


def _masked(input: torch.Tensor, kept: torch.Tensor, factor: float) -> torch.Tensor:
    # On a CPU torch.where, and a product with booleans, take six times as long as this.
    mask = kept.view(torch.int8).to(INTEGERS[input.itemsize]).neg_()  # of a number that is kept, all bits
    result = mask.bitwise_and_(input.contiguous().view(mask.dtype)).view(input.dtype)
    return result if factor == 1 else result.mul_(factor)
