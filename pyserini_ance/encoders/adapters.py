"""Adapters that a stage trains in place of all weights: LoRA (Hu et al. 2021, arXiv:2106.09685) by peft.

A checkpoint of such a stage holds what is trained alone, and names the encoder whose other weights it has.
Every reader but training merges them: it gets an encoder as any other, with the vectors of the exported one.
"""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.config import SIDE_FILE, TOWERS
from pyserini_ance.encoders.towers import TwoTower, find_layers
from pyserini_ance.recipe.components import SettingError, did_you_mean
from pyserini_ance.recipe.stage import Lora, Stage
from pyserini_ance.storage.files import read_json_object, sha256_json
from pyserini_ance.storage.publish import read_manifest

if TYPE_CHECKING:
    from pyserini_ance.encoders.encoder import Encoder

FILE = "adapters.safetensors"
KEY = "adapters"  # in the side file


class Adapters(NamedTuple):
    """How an encoder with adapters was made.

    trainable: as in the stage's settings. base: the folder of the encoder whose weights stay; hashes: those
    of its query and document tower. are_new: no vector differs from the base's yet.
    """

    lora: Lora
    trainable: str
    base: Path
    hashes: tuple[str, str]
    are_new: bool = True

    @property
    def sides(self) -> tuple[Side, ...]:
        """The towers that have adapters."""
        return sides_of(self.trainable)


def sides_of(trainable: str) -> tuple[Side, ...]:
    """The towers that train, by a stage's `trainable`."""
    return SIDES if trainable == "both" else ("query",)


def adapters_of(encoder: str | Path) -> Adapters | None:
    """How the encoder in a folder was made; None if it has all its weights.

    Raises FileNotFoundError without the encoder whose other weights it has, RuntimeError if that has changed.
    """
    made = (read_json_object(Path(encoder) / SIDE_FILE) or {}).get(KEY)
    if made is None:
        return None
    base, hashes = Path(os.path.normpath(Path(encoder) / made["of"])), tuple(made["hashes"])
    cure = "copy a run directory as a whole, or take RUN/model, in which adapters are merged"
    if not base.exists():
        raise FileNotFoundError(f"{encoder} holds adapters of {base} alone, which is missing; {cure}")
    if checkpoint_hashes(base, verify=False) != hashes:
        raise RuntimeError(f"{encoder} holds adapters of other weights than those in {base}; {cure}")
    lora = Lora(**{key: made["lora"][key] for key in Lora.model_fields})
    return Adapters(lora, made["trainable"], base, hashes, made["are_new"])


def checkpoint_hashes(encoder: Path, verify: bool) -> tuple[str, str]:
    """The hashes of the towers of an encoder in a published checkpoint. Raises as `read_manifest`, and as
    `adapters_of`."""
    own = f"{encoder.name}/"  # training drops the moments while others read
    parts = read_manifest(encoder.parent, verify, own)["parts"]
    files = {name.removeprefix(own): part["sha256"] for name, part in parts.items() if name.startswith(own)}
    adapters = adapters_of(encoder)
    return tower_hash(files, "query", adapters), tower_hash(files, "document", adapters)


def tower_hash(files: Mapping[str, str], side: Side, adapters: Adapters | None) -> str:
    """The hash of the weights of a side, from those of the `files` in an encoder's folder.

    Untied towers are in folders of their own. A tower without adapters, or with new ones, has the weights of
    their base.
    """
    if adapters is not None and (side not in adapters.sides or adapters.are_new):
        return adapters.hashes[SIDES.index(side)]
    for folder in (f"{TOWERS[side]}/", ""):
        of_tower = {
            name.removeprefix(folder): sha256
            for name, sha256 in files.items()
            if name.startswith(folder) and name.endswith(".safetensors")
        }
        if of_tower:
            return next(iter(of_tower.values())) if len(of_tower) == 1 else sha256_json(of_tower)
    raise RuntimeError(f"the manifest of a checkpoint lists no weights of its {side} tower")


def require_package(name: str, key: str) -> None:
    """Raise RuntimeError if the package of the extra `name` is missing; `key` is what needs it."""
    if importlib.util.find_spec(name) is None:
        raise RuntimeError(f"{key} needs {name}; install it: pip install 'pyserini_ance[{name}]'")


def check_trainable(towers: TwoTower, stage: Stage, key: str, shards: bool = False) -> None:
    """Raise SettingError, with the stage's `key`, for towers that have no layers for `lora` or for
    `gradient_checkpointing`; ValueError for layers that cannot be found to share them out (`shards`)."""
    from transformers.pytorch_utils import Conv1D

    for model in (towers.tower(side).transformer for side in sides_of(stage.trainable)):
        if stage.gradient_checkpointing and not getattr(model, "supports_gradient_checkpointing", False):
            raise SettingError(f"{key}.gradient_checkpointing: the model does not support it; remove the key")
        if model is None and (stage.lora is not None or shards):
            where = f"{key}.lora" if stage.lora is not None else "shard"
            raise SettingError(
                f"{where}: the encoder has no Transformer, only tokens' vectors; remove the key"
            )
        if shards:
            find_layers(model, "shard", "the encoder")
        if stage.lora is None:
            continue
        named = [(name.split("."), layer) for name, layer in model.named_modules()]
        linear = {
            path[-1] for path, layer in named if isinstance(layer, nn.Linear | Conv1D) and path[0] != "pooler"
        }
        for name in () if isinstance(stage.lora.target, str) else stage.lora.target:
            if name not in linear:
                raise SettingError(
                    f"{key}.lora.target: no linear layer has the name {name!r}{did_you_mean(name, linear)}; "
                    f"there are: {', '.join(sorted(linear))}"
                )


def add_adapters(towers: TwoTower, made: Adapters, seed: int, source: Path | None = None) -> None:
    """Give the towers of `made.sides` adapters, which are then all that trains in their Transformers.

    They are drawn from `seed`, and change no vector before they are trained; with `source` they are those
    that were saved there. What follows a Transformer (a Dense, a LayerNorm) still trains as a whole.

    Raises RuntimeError for a file of other adapters.
    """
    require_package("peft", f"an encoder with adapters of {made.base}")
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


def save_adapters(towers: TwoTower, made: Adapters, folder: Path) -> dict[str, Any]:
    """Write what is trained; return what the side file says. The hash of a file depends on the base, too."""
    are_new = True
    for name, module in _files(towers, made).items():
        (folder / name).parent.mkdir(exist_ok=True)
        weights = {key: each.detach().cpu().contiguous() for key, each in trained_weights(module).items()}
        are_new &= not any(bool(each.any()) for key, each in weights.items() if ".lora_B." in key)
        save_file(weights, folder / name, {"base": " ".join(made.hashes)})
    # From one checkpoint of a run to another, wherever the run is.
    of = f"../../{made.base.parent.name}/{made.base.name}"
    about = {"lora": made.lora.model_dump(mode="json"), "trainable": made.trainable, "of": of}
    return {KEY: {**about, "hashes": made.hashes, "are_new": are_new}}


def trained_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def _files(towers: TwoTower, made: Adapters) -> dict[str, nn.Module]:
    """The modules of which something is trained, by their files in the encoder's folder."""
    if towers.tied:
        return {FILE: towers}
    return {f"{TOWERS[side]}/{FILE}": towers.tower(side) for side in made.sides}


def merge_adapters(towers: nn.Module) -> None:
    """Add the adapters to the weights of their layers, W + alpha / r * B A, and train these again."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    wrapped = "."  # the name of the last wrapper, whose own layers go with it
    for name, layer in list(towers.named_modules()):
        if name.startswith(wrapped):
            continue
        if isinstance(layer, AuxiliaryTrainingWrapper):  # modules_to_save, trainable_token_indices
            wrapped = f"{name}."
            merged = layer.unload_and_optionally_merge_module(True, False, None)
        elif isinstance(layer, BaseTunerLayer):
            layer.merge()
            merged = layer.get_base_layer()
        else:
            continue
        parent, _, child = name.rpartition(".")
        setattr(towers.get_submodule(parent), child, merged)
    for module in towers.modules():
        vars(module).pop("peft_config", None)
        if vars(module).pop("_hf_peft_config_loaded", False):
            vars(module)["_weight_conversions"] = None  # else weights would be saved under peft's names
    towers.requires_grad_()
