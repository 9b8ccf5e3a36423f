"""BERT's layers by torch's fused encoder layer, for calls with few tokens on a CPU."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

PROJECTIONS = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))
ATTENTION_OUTPUT, ATTENTION_NORM = "attention.output.dense", "attention.output.LayerNorm"
FEED_FORWARD, OUTPUT, OUTPUT_NORM = "intermediate.dense", "output.dense", "output.LayerNorm"
# What a layer must have: nothing else, such as a subclass that adds to a product, is computed.
KINDS = {
    **dict.fromkeys((*PROJECTIONS, ATTENTION_OUTPUT, FEED_FORWARD, OUTPUT), nn.Linear),
    **dict.fromkeys((ATTENTION_NORM, OUTPUT_NORM), nn.LayerNorm),
}
ROUNDING = 2**-15  # by which a layer's results, which are normalized, may differ
PROBE = (2, 9, 5)  # texts, their tokens, and those of the second text that are not padding
IS_GELU, NORMALIZES_FIRST, MASKS_TOKENS = True, False, 1  # as the operator wants them


class FusedLayer(nn.Module):
    """A layer of BERT or RoBERTa in a single operator, that of nn.TransformerEncoderLayer's inference.

    transformers' layer calls dozens of operators and modules; with a dozen tokens that takes a quarter of the
    time. Long texts are slower in this operator, which holds all scores of attention. It is private, so
    `fuse_layers` compares; nn.TransformerEncoderLayer itself checks so much in each call that half of the
    gain is lost. The weights are copied.
    """

    def __init__(self, layer: Any):
        super().__init__()
        parts = {name: layer.get_submodule(name) for name in KINDS}
        self.size = parts[OUTPUT].out_features

        def weights(*names: str) -> list[torch.Tensor]:
            """The weight and the bias of one part, or of several as one."""
            kinds = ("weight", "bias")
            return [torch.cat([getattr(parts[name], kind).detach() for name in names]) for kind in kinds]

        self._arguments: tuple[Any, ...] = (
            self.size,
            layer.attention.self.num_attention_heads,
            *weights(*PROJECTIONS),
            *weights(ATTENTION_OUTPUT),
            IS_GELU,
            NORMALIZES_FIRST,
            parts[ATTENTION_NORM].eps,
            *weights(ATTENTION_NORM),
            *weights(OUTPUT_NORM),
            *weights(FEED_FORWARD),
            *weights(OUTPUT),
        )

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, *_: Any, **__: Any
    ) -> torch.Tensor:
        """hidden_states (B, L, D) -> (B, L, D).

        attention_mask: None, or (B, 1, 1 or L, L), as transformers makes it for texts with padding: true or 0
        for tokens, else false or a large negative number.
        """
        # Without a mask, the operator rounds differently: a query alone would be less like one in a batch.
        if attention_mask is None:
            padding = torch.zeros(hidden_states.shape[:2], dtype=torch.bool)
        else:
            by_token = attention_mask[:, 0, 0]
            padding = ~by_token if by_token.dtype == torch.bool else by_token < 0
        arguments = (*self._arguments, padding, MASKS_TOKENS)
        states: torch.Tensor = torch._transformer_encoder_layer_fwd(hidden_states, *arguments)
        return states


def fuse_layers(tower: nn.Module) -> int:
    """Replace in place each layer of `tower`, in evaluation mode, that a `FusedLayer` can compute; returns
    their number."""
    fused = {name: own for name, layer in tower.named_modules() if (own := _fused(layer)) is not None}
    for name, own in fused.items():
        tower.set_submodule(name, own)
    return len(fused)


def _fused(layer: nn.Module) -> FusedLayer | None:
    """The FusedLayer of a layer with BERT's parts, as their classes have them, or None."""
    parts: dict[str, Any] = dict(layer.named_modules())
    if any(type(parts.get(name)) is not kind for name, kind in KINDS.items()):
        return None
    if getattr(layer, "is_decoder", False):  # its masks differ from token to token
        return None
    if parts[ATTENTION_NORM].eps != parts[OUTPUT_NORM].eps:  # the operator has one
        return None
    if any(
        part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in parts.values()
    ):
        return None
    try:
        own = FusedLayer(layer)
        return own if _agrees(layer, own) else None
    except (AttributeError, RuntimeError, TypeError):  # no such operator, other shapes, no bias, ...
        return None


@torch.inference_mode()
def _agrees(layer: Any, own: FusedLayer) -> bool:
    """Whether both layers give tokens the same states, without padding and with it, by one activation."""
    texts, length, tokens = PROBE
    states = torch.arange(texts * length * own.size).double().sin().float().view(texts, length, own.size)
    mask = torch.zeros(texts, 1, length, length)
    mask[1, ..., tokens:] = torch.finfo(torch.float32).min
    is_token = mask[:, 0, 0] == 0
    numbers = torch.linspace(-4, 4, 101)  # small weights hide which approximation of gelu a layer takes
    pairs = [
        (layer.intermediate.intermediate_act_fn(numbers), functional.gelu(numbers)),
        (layer(states, attention_mask=None), own(states)),
        (layer(states, attention_mask=mask)[is_token], own(states, mask)[is_token]),
    ]
    return all(torch.allclose(found, expected, rtol=ROUNDING, atol=ROUNDING) for expected, found in pairs)
