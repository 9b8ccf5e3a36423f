"""A family of encoders: the configuration of a tower, and how to build, load and save one."""

import importlib.util
import logging
from abc import abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, PlainValidator, model_validator
from torch import nn

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.recipe.parts import Part, Settings

log = logging.getLogger(__name__)
SIDE_FILE = "pyserini_ance.json"  # in a folder that we saved: what the files of Hugging Face leave out


class Tower(nn.Module):
    """side, ids (B, L), mask (B, L) -> vectors (B, D) float32."""

    dimension: int
    longest_input: int


class BySide(Settings):
    query: bool
    document: bool


def _switch(value: Any) -> bool | BySide:
    """One message, not one for each type that it might be of. Sides that agree are one switch."""
    if isinstance(value, BySide):
        value = value.model_dump()
    if isinstance(value, dict) and value.keys() == BySide.model_fields.keys() and all(isinstance(one, bool) for one in value.values()):
        return value["query"] if value["query"] == value["document"] else BySide(**value)
    if not isinstance(value, bool):
        raise ValueError("expected true or false, or one for each side: {query: true, document: false}")
    return value


# On or off; DANCE's released code treats queries and documents differently.
Switch = Annotated[Any, PlainValidator(_switch)]


def at(side: Side, switch: bool | BySide) -> bool:
    return switch if isinstance(switch, bool) else getattr(switch, side)


class Family(Part):
    """Where the weights of an encoder come from and how a tower is made of them.

    `model` is a hub name, a local folder, or `python:package/folder` for weights that a Python package carries. With
    `tied: false` documents have a tower of their own, which starts from `document_model` (default: `model`). `base`, of the
    same forms, gives the tokenizer, and of a .cp file the configuration, to a release that comes without.
    `l2` normalises vectors. `dropout` replaces all of the model's dropout probabilities in training; null leaves them.
    `weight_files` is how often `save` writes the weights.
    """

    weight_files: ClassVar[int] = 1

    model: str
    tied: bool = True
    document_model: str | None = None
    base: str | None = None
    dropout: float | None = Field(default=None, ge=0, lt=1)
    pooling: Literal["cls", "mean"] = "cls"
    l2: Switch = False
    tokenization: Tokenization = Tokenization()

    @model_validator(mode="after")
    def tied_towers_have_one_model(self):
        if self.tied and self.document_model is not None:
            raise ValueError("document_model is set, but the towers share their weights; set `tied: false`, or leave document_model out")
        return self

    def model_of(self, side: Side) -> str:
        return self.document_model or self.model if side == "document" else self.model

    @abstractmethod
    def build(self, source: str, side: Side, generator: torch.Generator) -> Tower:
        """The tower of a side from the weights at `source`; parts that the source lacks by design are drawn from `generator`."""

    @abstractmethod
    def load(self, folder: Path) -> Tower:
        """A tower from a folder that `save` wrote. Raises RuntimeError when a weight is missing."""

    @abstractmethod
    def save(self, tower: Tower, folder: Path) -> None:
        """Write weights and configuration so that Hugging Face, and the stock Pyserini class, can load them."""


def resolve_model(model: str) -> str:
    """A folder or hub name that transformers can load.

    Raises FileNotFoundError for a package or folder that is not there.
    """
    if model.startswith("python:"):
        package, _, inner = model.removeprefix("python:").partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            hint = package.replace("_", "-")
            raise FileNotFoundError(f"encoder.model {model!r}: no Python package {package!r} here; try `pip install {hint}`")
        if not (folder := Path(spec.origin).parent / inner).is_dir():
            raise FileNotFoundError(f"encoder.model {model!r}: the package has no folder {folder}")
        return str(folder)
    path = Path(model).expanduser()
    if path.exists():
        return str(path)
    if model.startswith((".", "/", "~")):
        raise FileNotFoundError(f"encoder.model {model!r}: no such folder; expected a Hugging Face model folder or a hub name")
    return model


def quiet_transformers() -> None:
    """transformers reports each load at length; what matters of it is checked by us."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def longest_input(model) -> int:
    """Tokens that the position embeddings allow; those with a padding row (RoBERTa, MPNet, ...) count from after it."""
    longest = getattr(model.config, "max_position_embeddings", 512)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return longest - module.padding_idx - 1
    return longest


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """(B, L, H) and mask (B, L) -> (B, H) float32; the mean is taken in float32, since bf16 sums lose digits."""
    if pooling == "cls":
        return hidden[:, 0].float()
    weights = mask.unsqueeze(-1).float()
    return (hidden.float() * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
