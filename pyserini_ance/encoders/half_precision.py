"""Encoding in bf16 or fp16: a copy of a tower, on a CPU with weights packed for oneDNN."""

import copy
import logging
from functools import cache, cached_property
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pyserini_ance.encoders.family import Tower

log = logging.getLogger(__name__)
PROBES = ((1, 64, 32), (48, 96, 40), (33, 40, 200))  # products as (rows, inputs, outputs)


def half_copy(tower: Tower, dtype: torch.dtype) -> Tower:
    """A copy of `tower` whose transformer computes in `dtype`. It shares what stays in fp32.

    A pass in bf16 alone is 1.2 times as fast as autocast, which goes back and forth between precisions. What
    follows the transformer (pooling, heads, normalization) stays in fp32. On a CPU, linear layers in bf16 are
    packed where `packs_linears`; those with hooks or a computed weight, and subclasses, are not.
    """
    models = transformers_in(tower)
    replaced: dict[int, Any] = {id(each): each for each in chain(tower.parameters(), tower.buffers())}
    replaced |= {id(model.config): model.config for model in models}
    # Tensors with a graph, which a module keeps from a step before, cannot be copied.
    kept = [each for module in tower.modules() for each in vars(module).values() if torch.is_tensor(each)]
    replaced |= {id(each): each.detach() for each in kept if not each.is_leaf}
    inner = [model for model in models if len(transformers_in(model)) == 1]
    for module in chain.from_iterable(model.modules() for model in inner):
        own = dict(module.named_parameters(recurse=False))
        if _is_packed(module, dtype):
            replaced[id(module)] = PackedLinear(module.weight, module.bias)
        else:
            replaced |= {id(weight): _half(weight, dtype) for weight in own.values()}
    return copy.deepcopy(tower, replaced)


def transformers_in(module: nn.Module) -> list[Any]:
    """The models of transformers in `module`, which have several implementations of attention."""
    return [each for each in module.modules() if hasattr(each, "set_attn_implementation")]


def _is_packed(module: nn.Module, dtype: torch.dtype) -> bool:
    if type(module) is not nn.Linear or dtype != torch.bfloat16 or module.weight.device.type != "cpu":
        return False
    is_hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return not is_hooked and isinstance(module.weight, nn.Parameter) and packs_linears()


def _half(weight: torch.Tensor, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(weight.detach().to(dtype), requires_grad=False)


class PackedLinear(nn.Module):
    """A linear layer in bf16 on a CPU, for inference. `nn.Linear` reorders its weight in every product.

    The operators are those of torch.compile with freezing (torch/_inductor/fx_passes/mkldnn_fusion.py). They
    are private: see `packs_linears`. With one thread, results equal nn.Linear's bit for bit on an Intel Xeon
    with AMX. With several, nn.Linear cuts long sums into pieces where there are few rows, which rounds
    differently.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(torch.bfloat16))
        self.bias = None if bias is None else bias.detach().to(torch.bfloat16)

    @cached_property
    def weight(self) -> torch.Tensor:
        """In rows and columns, for models that read it, such as T5 and DeBERTa."""
        unpacked: torch.Tensor = self._packed.to_dense()
        return unpacked

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs (..., in_features) -> (..., out_features)."""
        if inputs.dtype != torch.bfloat16:  # under autocast, say
            return functional.linear(inputs, self.weight, self.bias)
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, "none", [], ""
        )
        return outputs


@cache
def packs_linears() -> bool:
    """Whether this torch and this processor have `PackedLinear`'s operators, with the results of nn.Linear.

    The log says which was taken. Packing makes encoding in bf16 1.1 times as fast (docs/lab-notes/speed.md).
    """
    try:
        wrong = [shape for shape in PROBES if not _agrees(*shape)]
    except (AttributeError, RuntimeError) as error:  # no such operator; one that this processor lacks
        log.info("linear layers in bf16: weights are reordered in every product (%s)", error)
        return False
    if wrong:
        log.warning("linear layers in bf16: packed weights give other results, so they are not used")
        return False
    log.info("linear layers in bf16: weights are packed once")
    return True


def _agrees(rows: int, inputs: int, outputs: int) -> bool:
    """Whether a product agrees within the rounding of bf16."""
    numbers = torch.arange(max(rows, outputs) * inputs, dtype=torch.float64).sin().bfloat16()
    given = numbers[: rows * inputs].view(rows, inputs)
    weight = numbers[: outputs * inputs].view(outputs, inputs)
    bias = weight[:, 0].contiguous()
    expected = functional.linear(given, weight, bias)
    with torch.inference_mode():
        result = PackedLinear(weight, bias)(given)
    return torch.allclose(result, expected, rtol=2**-7, atol=2**-7)
