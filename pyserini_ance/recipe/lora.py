"""Adapters of LoRA as a stage sets them (encoders/adapters.py)."""

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from pyserini_ance.recipe.components import Settings, expected


class Lora(Settings):
    """A pair of matrices of rank `r` beside each of a Transformer's linear layers, whose own weights stay."""

    r: PositiveInt = 16
    """The rank."""
    alpha: PositiveInt = 32
    """What the pairs give is multiplied by `alpha / r`."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """The probability of dropout before a pair."""
    target: Annotated[
        Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)],
        expected("all-linear, or a list of names such as [q_proj]"),
    ] = "all-linear"
    """The names of the linear layers, such as `[q_proj, v_proj]`; `all-linear`: all but a pooler's."""
    shard_base: bool = False
    """Whether the frozen weights are sharded over the processes of a torchrun (FSDP2)."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """What two stages with the same adapters have in common."""
        return self.r, self.alpha, self.target
