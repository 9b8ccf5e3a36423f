"""A copy of a tower for encoding: in bf16 or fp16, and on a CPU with weights packed for oneDNN."""

import copy
import logging
from functools import cache, cached_property
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pyserini_ance.encoders.hardware import processor
from pyserini_ance.encoders.towers import Tower

log = logging.getLogger(__name__)
PROBES = ((1, 64, 32), (48, 96, 40), (33, 40, 200))  # products as (rows, inputs, outputs)
# The precision of a result, by which a packed layer may differ from nn.Linear.
ROUNDING = {torch.bfloat16: 2**-7, torch.float32: 2**-18}
# Packing the weights in fp32 takes as long as encoding some 300 tokens, and saves a fifth of the time.
FEWEST_TOKENS = 4096


def faster_copy(
    tower: Tower, dtype: torch.dtype, device: torch.device, tokens: int = FEWEST_TOKENS
) -> Tower | None:
    """The `inference_copy` where it is needed, in half precision, or faster, in fp32 on AMD; else None.

    tokens: how many it encodes; in fp32 a copy pays only for many. Its vectors differ from the tower's in
    their last bits.
    """
    if dtype != torch.float32:
        return inference_copy(tower, dtype)
    if device.type != "cpu" or tokens < FEWEST_TOKENS or not packs_linears(dtype):
        return None
    try:
        return inference_copy(tower, dtype)
    except (TypeError, RuntimeError) as error:  # of any model's own code: the copy only saves time
        log.warning("encoding in fp32 uses no faster copy, because the model cannot be copied: %s", error)
        return None


def inference_copy(tower: Tower, dtype: torch.dtype) -> Tower:
    """A copy of `tower` whose transformer computes in `dtype`. It shares what stays as it is.

    A pass in bf16 alone is 1.2 times as fast as autocast, which goes back and forth between precisions.
    What follows the transformer (pooling, heads, normalization) stays in fp32, and hooks are called as
    before. On a CPU, linear layers are packed where `packs_linears`; those with hooks or a computed weight,
    and subclasses, are not.
    """
    models = transformers_in(tower)
    replaced: dict[int, Any] = {id(each): each for each in chain(tower.parameters(), tower.buffers())}
    replaced |= {id(model.config): model.config for model in models}
    # A module of sentence-transformers has its tokenizer, which is slow to copy.
    parts = (getattr(one, name, None) for one in tower.modules() for name in ("processor", "input_formatter"))
    replaced |= {id(part): part for part in parts}
    # Tensors with a graph, which a module keeps from a step before, cannot be copied.
    kept = [each for module in tower.modules() for each in vars(module).values() if torch.is_tensor(each)]
    replaced |= {id(each): each.detach() for each in kept if not each.is_leaf}
    replaced |= {id(hook): hook for module in tower.modules() for hook in _hooks(module)}
    inner = [model for model in models if len(transformers_in(model)) == 1]
    for module in (module for model in inner for module in model.modules()):
        if packs_linears(dtype) and _can_be_packed(module):
            replaced[id(module)] = PackedLinear(module.weight, module.bias, dtype)
        else:
            for weight in module.parameters(recurse=False):
                replaced[id(weight)] = nn.Parameter(weight.detach().to(dtype), requires_grad=False)
    return copy.deepcopy(tower, replaced)


def transformers_in(module: nn.Module) -> list[Any]:
    """The models of transformers in `module`, which have several implementations of attention."""
    return [each for each in module.modules() if hasattr(each, "set_attn_implementation")]


def _can_be_packed(module: nn.Module) -> bool:
    return (
        type(module) is nn.Linear
        and module.weight.device.type == "cpu"
        and isinstance(module.weight, nn.Parameter)
        and "forward" not in vars(module)
        and not _hooks(module)
    )


def _hooks(module: nn.Module) -> list[Any]:
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]


class PackedLinear(nn.Module):
    """A linear layer of oneDNN in bf16 or fp32 on a CPU, for inference.

    `nn.Linear` reorders its weight in every product in bf16; in fp32 it multiplies with MKL.

    The operators are those of torch.compile with freezing (torch/_inductor/fx_passes/mkldnn_fusion.py). They
    are private: see `packs_linears`. In bf16 with one thread, results equal nn.Linear's bit for bit on an
    Intel Xeon with AMX. With several, nn.Linear cuts long sums into pieces where there are few rows, which
    rounds differently.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.dtype = dtype
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype))
        # The operator ignores strides.
        self.bias = None if bias is None else bias.detach().to(dtype).contiguous()

    @cached_property
    def weight(self) -> Tensor:
        """In rows and columns, for models that read it, such as T5 and DeBERTa."""
        return self._packed.to_dense()

    def forward(self, inputs: Tensor) -> Tensor:
        """inputs (..., in_features) -> (..., out_features)."""
        if inputs.dtype != self.dtype:  # under autocast, say
            return functional.linear(inputs, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self.bias, "none", [], "")


def packs_linears(dtype: torch.dtype) -> bool:
    """Whether `inference_copy` packs linear layers in `dtype`. The log says so.

    In bf16 it makes encoding 1.1 times as fast; in fp32 it does so on AMD processors, where oneDNN multiplies
    1.2 times as fast as MKL or more (docs/lab-notes/speed.md). It needs `PackedLinear`'s operators, which
    this torch and this processor must have, with the results of nn.Linear.
    """
    return (
        dtype in ROUNDING
        and bool(dtype != torch.float32 or processor().amd_family)
        and _operators_agree(dtype)
    )


@cache
def _operators_agree(dtype: torch.dtype) -> bool:
    name = f"linear layers in {'bf16' if dtype == torch.bfloat16 else 'fp32'}"
    try:
        wrong = [shape for shape in PROBES if not _agrees(*shape, dtype)]
    except (AttributeError, RuntimeError) as error:  # no such operator; one that this processor lacks
        log.info("%s: weights are not packed (%s)", name, error)
        return False
    if wrong:
        log.warning("%s: packed weights give other results, so they are not used", name)
        return False
    log.info("%s: weights are packed once", name)
    return True


def _agrees(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> bool:
    numbers = torch.arange(max(rows, outputs) * inputs, dtype=torch.float64).sin().to(dtype)
    given = numbers[: rows * inputs].view(rows, inputs)
    weight = numbers[: outputs * inputs].view(outputs, inputs)
    bias = weight[:, 0].contiguous()
    expected = functional.linear(given, weight, bias)
    with torch.inference_mode():
        result = PackedLinear(weight, bias, dtype)(given)
    rounding = ROUNDING[dtype]
    return result.dtype == dtype and torch.allclose(result, expected, rtol=rounding, atol=rounding)
