"""Adapters that a stage trains in place of all weights: LoRA (Hu et al. 2021, arXiv:2106.09685) by peft.

A checkpoint of such a stage holds what is trained alone, and names the encoder whose other weights it has.
Every reader but training merges them: it gets an encoder as any other, with the vectors of the exported one.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.config import SIDE_FILE, TOWERS
from pyserini_ance.encoders.layer_reduction import find_layers
from pyserini_ance.encoders.towers import TwoTower
from pyserini_ance.recipe.components import SettingError, did_you_mean
from pyserini_ance.recipe.lora import Lora
from pyserini_ance.storage.files import read_json_object

if TYPE_CHECKING:
    from pyserini_ance.encoders.encoder import Encoder

FILE = "adapters.safetensors"
KEY = "adapters"  # in the side file


class Adapters(NamedTuple):
    """How an encoder with adapters was made.

    trainable: as in the stage's settings. base: the folder of the encoder whose weights stay; hashes: those
    of its query and document tower.
    """

    lora: Lora
    trainable: str
    base: Path
    hashes: tuple[str, str]

    @property
    def sides(self) -> tuple[Side, ...]:
        """The towers that have adapters."""
        return SIDES if self.trainable == "both" else ("query",)

    def as_json(self) -> dict[str, Any]:
        """For the side file. `of` leads from one checkpoint of a run to another, wherever the run is."""
        of = f"../../{self.base.parent.name}/{self.base.name}"
        lora = self.lora.model_dump(mode="json")
        return {"lora": lora, "trainable": self.trainable, "of": of, "hashes": self.hashes}


def adapters_of(folder: str | Path) -> Adapters | None:
    """How the encoder in `folder` was made; None if it has all its weights."""
    made = (read_json_object(Path(folder) / SIDE_FILE) or {}).get(KEY)
    if made is None:
        return None
    base = Path(os.path.normpath(Path(folder) / made["of"]))
    if not (base / SIDE_FILE).exists():
        raise FileNotFoundError(
            f"{folder} holds adapters of {base} alone, which is missing; copy the run directory as a whole, "
            "or take RUN/model, in which they are merged"
        )
    return Adapters(Lora(**made["lora"]), made["trainable"], base, tuple(made["hashes"]))


def check_lora(towers: TwoTower, lora: Lora, key: str) -> None:
    """Raise SettingError for towers without a Transformer, and for a name that none of its layers has;
    ValueError for a model whose layers cannot be found to share them out.

    key: the recipe's key of `lora`.
    """
    model = towers.queries.transformer
    if model is None:
        raise SettingError(f"{key}: the encoder has no Transformer, only vectors of tokens; remove the key")
    names = {name.rpartition(".")[2] for name, layer in model.named_modules() if hasattr(layer, "weight")}
    for target in () if isinstance(lora.target, str) else lora.target:
        if target not in names:
            raise SettingError(
                f"{key}.target: the encoder has no layers named {target!r}{did_you_mean(target, names)}; "
                f"there are: {', '.join(sorted(names))}"
            )
    if lora.shard_base:
        find_layers(model, f"{key}.shard_base", "the encoder")


def add_adapters(towers: TwoTower, made: Adapters, seed: int, source: Path | None = None) -> None:
    """Give the towers of `made.sides` adapters, which are then all that trains in their Transformers.

    They are drawn from `seed`, and change no vector before they are trained; with `source` they are those
    that were saved there. What follows a Transformer (a Dense, a LayerNorm) still trains as a whole.

    Raises RuntimeError for a file of other adapters.
    """
    from peft import LoraConfig, inject_adapter_in_model

    models = {id(model): model for model in (towers.tower(side).transformer for side in made.sides)}
    target = made.lora.target if isinstance(made.lora.target, str) else list(made.lora.target)
    for model in models.values():
        config = LoraConfig(
            r=made.lora.r,
            lora_alpha=made.lora.alpha,
            lora_dropout=made.lora.dropout,
            target_modules=target,
            # Vectors do not use it.
            exclude_modules=None if getattr(model, "pooler", None) is None else r"pooler\..*",
        )
        model.requires_grad_(False)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # towers that are equal get equal adapters
            inject_adapter_in_model(config, model)
    if source is None:
        return
    for name, module in _files(towers, made).items():
        own, saved = trained_weights(module), load_file(source / name)
        if {key: each.shape for key, each in own.items()} != {key: each.shape for key, each in saved.items()}:
            raise RuntimeError(
                f"{source / name} has weights of other names or sizes than adapters of {made.base} have by "
                f"{SIDE_FILE}; files were changed: copy the run again"
            )
        with torch.no_grad():
            for key, weight in own.items():
                weight.copy_(saved[key])


def keep_frozen_in(dtype: torch.dtype, encoder: "Encoder") -> None:
    """Let the linear layers beside adapters have the precision in which autocast computes them: the same
    numbers in half the memory."""
    for layer in encoder.towers.modules() if encoder.adapters else ():
        if type(layer) is nn.Linear and not layer.weight.requires_grad:
            layer.to(dtype)


def save_adapters(towers: TwoTower, made: Adapters, folder: Path) -> None:
    """Write what is trained. The hash of a file depends on the base, too."""
    for name, module in _files(towers, made).items():
        (folder / name).parent.mkdir(exist_ok=True)
        weights = {key: each.detach().cpu().contiguous() for key, each in trained_weights(module).items()}
        save_file(weights, folder / name, {"base": " ".join(made.hashes)})


def trained_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def _files(towers: TwoTower, made: Adapters) -> dict[str, nn.Module]:
    """The modules of which something is trained, by their files in the encoder's folder."""
    if towers.tied:
        return {FILE: towers}
    return {f"{TOWERS[side]}/{FILE}": towers.tower(side) for side in made.sides}


def merge_adapters(towers: TwoTower) -> None:
    """Add the adapters to the weights of their layers, W + alpha / r * B A, and train these again."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(towers.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            parent, _, child = name.rpartition(".")
            setattr(towers.get_submodule(parent), child, layer.get_base_layer())
    for module in towers.modules():
        vars(module).pop("peft_config", None)
    towers.requires_grad_()
