"""TwoTower, the module that is trained, and Family, the base class of encoder families.

A family is the configuration of a tower, and builds, loads and saves one.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, StrictBool, model_validator
from torch import Tensor, nn
from torch.func import functional_call

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.hub import resolve_model
from pyserini_ance.encoders.layer_reduction import Layers
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.recipe.components import Component, expected
from pyserini_ance.storage.files import read_json_object

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIDE_FILE = "pyserini_ance.json"  # in a saved folder: the settings that Hugging Face's files lack
# Settings that name weights: those of a saved encoder are next to its side file.
START_KEYS = ("model", "document_model", "base")
# Settings that may differ between a checkpoint and the recipe that starts from it.
MAY_DIFFER = (*START_KEYS, "tied", "head", "dropout")
# Settings that say what is made of a saved encoder that a recipe starts from. A checkpoint that training
# continues from was made with them.
START_SETTINGS = ("layers",)


class Tower(nn.Module):
    """One tower: side, ids (B, L) and mask (B, L) -> vectors (B, D) float32.

    A tower that does not need a mask gets None where no text is padded.
    """

    dimension: int
    longest_input: int
    needs_mask: ClassVar[bool] = True


class TwoTower(nn.Module):
    """The query tower and the document tower as one module, which data-parallel wrapping needs.

    `documents=None` ties the towers: both sides share all weights. A frozen tower has no gradients and no
    dropout.
    """

    def __init__(self, queries: Tower, documents: Tower | None = None):
        super().__init__()
        self.queries = queries
        self.documents = queries if documents is None else documents

    @property
    def tied(self) -> bool:
        return self.documents is self.queries

    def tower(self, side: Side) -> Tower:
        return self.queries if side == "query" else self.documents

    def untie(self) -> None:
        if self.tied:
            self.documents = copy.deepcopy(self.queries)

    def freeze(self, side: Side) -> None:
        """Disable gradients and dropout of a tower. Raises ValueError if the other side shares it."""
        if self.tied:
            raise ValueError(f"the {side} tower cannot be frozen alone, the towers are tied: untie them")
        self.tower(side).requires_grad_(False)
        self.train(self.training)

    def trains(self, side: Side) -> bool:
        """Whether any weight of a side's tower has gradients."""
        return any(parameter.requires_grad for parameter in self.tower(side).parameters())

    def train(self, mode: bool = True) -> "TwoTower":
        super().train(mode)
        for side in SIDES:
            if not self.trains(side):
                self.tower(side).eval()
        return self

    def forward(
        self, side: Side, ids: Tensor, mask: Tensor | None, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """ids (B, L) and mask (B, L) of one side -> vectors (B, D) float32; mask None: no text is padded.

        `weights` take the place of the tower's own of these names, in this call.
        """
        tower = self.tower(side)
        inputs = side, ids, torch.ones_like(ids) if mask is None and tower.needs_mask else mask
        vectors: Tensor = functional_call(tower, dict(weights), inputs) if weights else tower(*inputs)
        return vectors


# On or off, or on for one side: DANCE's released code treats queries and documents differently.
Switch = Annotated[StrictBool | Side, expected("true or false, or `query` or `document` for one side")]


def at(side: Side, switch: Switch) -> bool:
    """Whether a switch is on for one side."""
    return switch if isinstance(switch, bool) else switch == side


class Family(Component):
    """The weights of an encoder, and how a tower computes vectors with them.

    weight_files: the number of copies of the weights that `save` writes.
    """

    weight_files: ClassVar[int] = 1
    # Whether Pyserini's stock class computes attention in the eager way: ours does too, to agree closely.
    eager_on_cpu: ClassVar[bool] = False

    model: str
    """A hub name, a local folder, or `python:package/folder` for weights in a Python package."""
    tied: bool = True
    """Whether queries and documents share one tower."""
    document_model: str | None = None
    """The initial weights of the document tower with `tied: false`; null: those of `model`."""
    base: str | None = None
    """A model with the tokenizer, and for a .cp file the configuration, of a release that lacks them."""
    layers: Layers = None
    """Layers of the initial weights that the encoder consists of, such as `[0, 2, 4]`, counted from 0; null:
    all. A saved encoder has these layers alone, and is loaded whole."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """The probability of all dropouts in training; null: those of the model."""
    pooling: Literal["cls", "mean"] = "cls"
    """Use the vector of the first token, or the mean over all tokens."""
    normalize: Switch = False
    """Whether vectors are scaled to length 1; `query` and `document` scale those of this side alone."""
    tokenization: Tokenization = Tokenization()
    """How records become texts, and texts become token ids."""

    @property
    def names_or_paths(self) -> frozenset[str]:
        return frozenset({"model", "document_model"})

    @model_validator(mode="before")
    @classmethod
    def read_saved(cls, values: Any) -> Any:
        """Take what is left out from the side file of an encoder that this package has saved."""
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, str):
            return values
        try:
            folder = Path(resolve_model(model))
        except FileNotFoundError:  # said when the weights are loaded
            return values
        file = folder / SIDE_FILE
        saved = (read_json_object(file) if file.is_file() else None) or {}
        if saved.get("kind") != values.get("kind", cls.model_fields["kind"].get_default()):
            return values
        # What is made of an encoder in training is not taken from it.
        own = {*MAY_DIFFER, *START_SETTINGS} - {"tied"}
        saved = {key: saved[key] for key in (saved.keys() & cls.model_fields.keys()) - own}
        tokenization = values.get("tokenization")
        given = tokenization.get("document") if isinstance(tokenization, dict) else None
        if isinstance(given, dict) and "passages" in given:
            for key in ("special_tokens", "pad_passages"):  # only with several passages
                saved["tokenization"]["document"].pop(key, None)
        return completed(values, saved)

    @model_validator(mode="after")
    def check_document_model(self) -> "Family":
        if self.tied and self.document_model is not None:
            raise ValueError("document_model is set, but the towers share their weights; set `tied: false`")
        return self

    def model_of(self, side: Side) -> str:
        return self.document_model or self.model if side == "document" else self.model

    @abstractmethod
    def build(self, source: str, side: Side, generator: torch.Generator) -> Tower:
        """The tower of a side from the weights at `source`.

        Layers that the source lacks by design are drawn from `generator`.
        """

    @abstractmethod
    def load(self, folder: Path) -> Tower:
        """A tower from a folder that `save` wrote. Raises RuntimeError if a weight is missing."""

    @abstractmethod
    def save(self, tower: Tower, folder: Path) -> None:
        """Write weights and configuration; Hugging Face and the stock Pyserini class can load them."""


def completed(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """`values`, and at any depth the `defaults` of keys that they lack."""
    made = dict(values)
    for key, default in defaults.items():
        value = made.setdefault(key, default)
        if isinstance(value, dict) and isinstance(default, dict):
            made[key] = completed(value, default)
    return made


def longest_input(model: "PreTrainedModel") -> int:
    """The number of tokens that the position embeddings allow.

    Position embeddings with a padding row (RoBERTa, MPNet, ...) count positions from after that row.
    """
    longest: int = getattr(model.config, "max_position_embeddings", 512)
    for name, module in model.named_modules():
        padding: int | None = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return longest - padding - 1
    return longest


# Encoders in which nothing but the mask that they are given hides padding from attention.
MASKED_ALONE = {"bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"}


def attention_mask(model: Any, mask: Tensor | None) -> Tensor | None:
    """Return the mask (B, L) in the form that `model` takes without a look at its values.

    To find out whether nothing is padded, transformers reads the mask of fused attention, for which the host
    waits; it takes a mask (B, 1, 1, L) as it is.
    """
    config = model.config
    if mask is None or config._attn_implementation != "sdpa" or config.model_type not in MASKED_ALONE:
        return mask
    return mask.bool()[:, None, None, :]


def pool(hidden: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """hidden (B, L, H), mask (B, L) or None -> (B, H) float32; means use float32, because bf16 sums lose
    digits."""
    if pooling == "cls":
        return hidden[:, 0].float()
    if mask is None:
        return hidden.float().sum(1) / hidden.shape[1]
    weights = mask.unsqueeze(-1).float()
    return (hidden.float() * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
