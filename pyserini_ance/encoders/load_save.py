"""Loading and saving of encoders: sentence-transformers' folders, and a side file with all that they lack.

Untied towers are saved in `queries/` and `documents/`, each a complete model; the folder above has a Router
of both. Towers that a run has exported in DPR's format (`dpr.py`) are loaded in the same way.
"""

import copy
import operator
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders import released
from pyserini_ance.encoders.adapters import Adapters, adapters_of, add_adapters, merge_adapters, save_adapters
from pyserini_ance.encoders.config import (
    MAY_BE_NULL,
    MAY_DIFFER,
    SIDE_FILE,
    SIDE_FORMAT,
    START_NAMES,
    TOWERS,
    EncoderConfig,
    config_of,
    is_saved,
    read_side_file,
    tower_folder,
)
from pyserini_ance.encoders.dpr import is_dpr, read_dpr
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.inference_copy import transformers_in
from pyserini_ance.encoders.modules import (
    Layers,
    complete,
    described,
    load_modules,
    names_of,
    save_modules,
    transformer_around,
    write_router,
)
from pyserini_ance.encoders.sentence_transformers_files import tower_source
from pyserini_ance.encoders.tokenization import TextTokenizer, surround
from pyserini_ance.encoders.towers import Tower, TwoTower
from pyserini_ance.encoders.weights import check_weight_files
from pyserini_ance.recipe.init_from import Change
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.storage.files import utf8_path, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(source: str) -> "PreTrainedTokenizerBase":
    """The fast tokenizer of a folder or hub name. Raises ValueError if there is none.

    A StaticEmbedding has one without a class, and no special tokens.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    with utf8_path(Path(source)) as path:
        files = {file.name for file in path.glob("*.json")}
        if "tokenizer.json" in files and not files & {"config.json", "tokenizer_config.json"}:
            bare = PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"))
            surround(bare, [], [])
            return bare
        tokenizer = released.seed_tokenizer(str(path)) or AutoTokenizer.from_pretrained(str(path))
    if not tokenizer.is_fast:
        raise ValueError(f"{source} has no fast tokenizer (tokenizer.json); save one with transformers first")
    if (side := tokenizer.truncation_side) != "right":
        expected = "'right': texts are cut at their end; set it in a copy, for vectors of the beginning"
        raise ValueError(f"{source}: truncation_side of its tokenizer is {side!r}; expected {expected}")
    return tokenizer


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write the encoder into an existing empty folder, which the caller publishes afterwards.

    Of an encoder with adapters, what is trained alone.
    """
    config, towers = encoder.config, encoder.towers
    if encoder.adapters is not None:
        saved = save_adapters(towers, encoder.adapters, folder)
        _write_side_file(encoder, folder, {**config.model_dump(mode="json", exclude=START_NAMES), **saved})
        return
    tokenizers = encoder.tokenizer.tokenizers
    layers: Layers = {side: list(towers.tower(side).layers) for side in SIDES}
    about = config.model_dump(mode="json", exclude=START_NAMES)
    with utf8_path(folder) as path:
        if towers.tied:
            save_modules(layers, path, tokenizers["query"], config)
        else:
            for side, name in TOWERS.items():
                (path / name).mkdir()
                save_modules({side: layers[side]}, path / name, tokenizers[side], config)
                settings = config.tokenization.limited(towers.tower(side).longest_input)
                alone = {"tied": True, "tower": side, "tokenization": settings.model_dump(mode="json")}
                modules = described(dict.fromkeys(SIDES, layers[side]))
                _write_side_file(encoder, path / name, {**about, **modules, **alone})
            write_router(path, TOWERS, layers, config)
        _write_side_file(encoder, path, about)


def load_encoder(folder: str | Path, device: str = "cpu") -> Encoder:
    """Load the encoder that `save_encoder` wrote.

    Raises FileNotFoundError if the folder or its side file is missing, RuntimeError if weights are missing.
    """
    return _load(config_of(folder), Path(folder), device, {})


def encoder_to_train(
    source: Path, hashes: tuple[str, str], stage: Stage, seed: int, device: str = "cpu"
) -> Encoder:
    """Load the encoder in `source`, a checkpoint with these hashes, as `stage` trains it.

    With `lora` it has adapters: those of the checkpoint if it was trained in the same way, else new ones on
    all its weights, drawn from `seed`. Otherwise, a checkpoint's adapters are merged.
    """
    made, is_same = None, False
    if stage.lora is not None:
        saved, shape = adapters_of(source), (stage.trainable, stage.lora.shape)  # dropout may be another
        is_same = saved is not None and (saved.trainable, saved.lora.shape) == shape
        new = Adapters(stage.lora, stage.trainable, source, hashes)
        made = saved._replace(lora=stage.lora) if saved and is_same else new
    encoder = load_encoder(made.base if made else source, device)
    encoder.adapters = made
    prepare_to_train(encoder, stage, seed, source if is_same else None)
    return encoder


def prepare_to_train(encoder: Encoder, stage: Stage, seed: int, adapters: Path | None = None) -> None:
    """Untie and freeze towers as `stage` has it, and add `encoder.adapters`: new ones, drawn from `seed`, or
    those saved in the folder `adapters`."""
    towers = encoder.towers
    if stage.trainable == "query_tower":
        encoder.untie()
        towers.freeze("document")
    if encoder.adapters is not None:
        add_adapters(towers, encoder.adapters, seed, adapters)
        for side in encoder.adapters.sides:
            towers.tower(side).to(encoder.device)
        if stage.trainable == "query_tower":  # checkpoints do not hold it
            towers.documents.to("meta")
    for model in transformers_in(towers) if stage.gradient_checkpointing else ():
        # Its name in newer versions of transformers 5, then that in older ones.
        names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
        enable = next(getattr(model, name) for name in names if hasattr(model, name))
        enable({"use_reentrant": False})


def load_unmerged(source: Path) -> Encoder:
    """The encoder in `source` as it was trained: with adapters that are not merged, if it has any."""
    adapters = adapters_of(source)
    if adapters is None:
        return load_encoder(source)
    check_weight_files(str(source))
    base = base_encoder(adapters.base, adapters.hashes)
    encoder = copy.copy(base)
    encoder.towers = copy.deepcopy(base.towers)
    if adapters.trainable == "query_tower":
        encoder.untie()
    add_adapters(encoder.towers, adapters, seed=0, source=source)
    return encoder


def save_as_peft(source: Path, folder: Path, base: str) -> None:
    """Write the adapters in `source` in peft's form: `SentenceTransformer(folder)` adds them to the model
    that `base` names. Of two towers, they are those of documents."""
    encoder = load_unmerged(source)
    sides: tuple[Side, ...] = SIDES if encoder.towers.tied else ("document",)
    model = encoder.towers.documents.transformer
    model._hf_peft_config_loaded = True  # transformers then saves the adapters alone
    model.peft_config["default"].base_model_name_or_path = base
    layers: Layers = {side: list(encoder.towers.tower(side).layers) for side in sides}
    save_modules(layers, folder, encoder.tokenizer.tokenizers["document"], encoder.config)


@lru_cache(maxsize=1)
def base_encoder(folder: Path, hashes: tuple[str, str]) -> Encoder:
    """The encoder whose weights stay. Each refresh has other adapters of it."""
    return load_encoder(folder)


def continue_encoder(config: EncoderConfig, folder: str | Path, changes: Collection[str] = ()) -> Encoder:
    """Load the encoder that `save_encoder` wrote, to continue training with the settings of `config`.

    Lengths and dropout may differ from the saved ones, and `tied: false` splits tied towers. Settings
    listed in `changes` may differ, too. Raises ValueError for any other difference, and what `load_encoder`
    raises.
    """
    saved = check_settings(config, Path(folder), changes)
    new = {key: value for key in changes if (value := config.modules("query").get(key)) is not None}
    own = {"tied": saved.tied, "truncate_dim": saved.truncate_dim}
    encoder = _load(config.model_copy(update=own), Path(folder), "cpu", new)
    if not config.tied:
        encoder.untie()
    for side in SIDES:
        chosen, model = getattr(config, side).layers, encoder.towers.tower(side).transformer
        if chosen is not None and (0 if model is None else model.config.num_hidden_layers) != len(chosen):
            raise ValueError(
                f"encoder.{side}.layers is {list(chosen)}, but {folder} has other layers; start from it by "
                "encoder.model, without init_from"
            )
    return encoder


def _load(config: EncoderConfig, folder: Path, device: str, new: Mapping[str, Any]) -> Encoder:
    """The saved encoder; with the settings of modules that are `new`."""
    groups: dict[str, Sequence[Side]] = {"": SIDES}
    if not config.tied:
        groups = {name: [side] for side, name in TOWERS.items()}
    layers: Layers = {}
    if adapters_of(folder):
        trained = load_unmerged(folder)
        merge_adapters(trained.towers)
        loaded = list(trained.tokenizer.tokenizers.values())
        merged: Layers = {side: list(trained.towers.tower(side).layers) for side in SIDES}
        layers = complete(merged, new, torch.Generator(), str(folder))
    else:
        with utf8_path(folder) as path:
            loaded = []
            for name, sides in groups.items():
                tower = str(path / name)
                check_weight_files(tower)
                layers |= complete(saved_layers(path / name, sides), new, torch.Generator(), tower)
                loaded.append(load_tokenizer(tower_source(tower, sides[0])))
    return encoder_of(config, layers, loaded, device)


def load_tower(folder: str | Path, side: Side, device: str = "cpu") -> Encoder:
    """Load the encoder for texts of one side; `folder` has an encoder, or only the tower of that side.

    Raises ValueError if it has only the tower of the other side.
    """
    saved_side = read_side_file(folder).get("tower", side)
    if saved_side != side:
        other = Path(folder).parent / TOWERS[side]
        raise ValueError(f"{folder} encodes a {saved_side}, not a {side}; use {other}")
    return load_encoder(tower_folder(folder, side), device)


def saved_layers(folder: Path, sides: Sequence[Side]) -> Layers:
    """The modules in a tower's folder that `save_encoder` wrote, or that a run exported in DPR's format.

    Raises RuntimeError for other modules than were saved.
    """
    if not is_dpr(folder):
        layers, side_file = load_modules(str(folder), sides), read_side_file(folder)
        both: Layers = {side: layers.get(side, layers[sides[0]]) for side in SIDES}
        found = {"modules": {side: names_of(own) for side, own in both.items()}, **described(both)}
        for key, value in found.items():
            if value != (expected := side_file[key]):
                raise RuntimeError(
                    f"{folder}: by the files of sentence-transformers its {key} is {value!r}, by {SIDE_FILE} "
                    f"{expected!r}; files were changed or are missing: copy the folder again"
                )
        return layers
    from sentence_transformers.sentence_transformer.modules import Pooling

    own_side: Side = read_side_file(folder)["tower"]
    first = transformer_around(read_dpr(str(folder), own_side), load_tokenizer(str(folder)))
    return {side: [first, Pooling(first.get_embedding_dimension(), "cls")] for side in sides}


def encoder_of(
    config: EncoderConfig, layers: Layers, tokenizers: "Sequence[PreTrainedTokenizerBase]", device: str
) -> Encoder:
    """The encoder of the sides' modules, with a tokenizer for each tower; the same modules are one tower."""
    queries, documents = layers["query"], layers["document"]
    is_one = len(queries) == len(documents) and all(map(operator.is_, queries, documents))
    size = config.truncate_dim
    towers = TwoTower(Tower(queries, size), None if is_one else Tower(documents, size))
    tokenizer = TextTokenizer(tokenizers[0], config.tokenization, tokenizers[-1])
    return Encoder(config.model_copy(update=described(layers)), towers, tokenizer, device)


def _write_side_file(encoder: Encoder, folder: Path, about: dict[str, Any]) -> None:
    modules = {side: names_of(list(encoder.towers.tower(side).layers)) for side in SIDES}
    if "tower" in about:
        modules = dict.fromkeys(SIDES, modules[about["tower"]])
    made = {"format": SIDE_FORMAT, "dimension": encoder.dimension, "modules": modules}
    write_json(folder / SIDE_FILE, {**made, **about})


def check_settings(
    config: EncoderConfig, source: Path, changes: Collection[str], sides: Sequence[Side] = SIDES
) -> EncoderConfig:
    """The settings of a saved encoder for texts of `sides`. Raises ValueError if those of `config` are
    others: that would be a silent mistake.

    Settings of modules, and `truncate_dim`, that are null are those of the encoder. Lengths may differ: ANCE
    warms up at 128 tokens and trains at 512 (microsoft/ANCE, commands/).
    """
    saved = config_of(source)
    if config.tied and not saved.tied:
        query = source / TOWERS["query"]
        other = f", or start from {query}" if is_saved(query) else ""  # else of adapters alone
        raise ValueError(f"{source} has two towers; set encoder.tied=false{other}")
    for key in [name for name in type(config).model_fields if name not in (*MAY_DIFFER, *changes)]:
        given: Any = getattr(config, key)
        if given is None and key in MAY_BE_NULL:
            continue
        expected: Any = getattr(saved, key, None)
        if key == "tokenization":
            given, expected = given.without_lengths(sides), expected.without_lengths(sides)
        if given != expected:
            allow = f", or, if this is intended, set `allow_changes: [{key}]` under the stage's `init_from:`"
            raise ValueError(
                f"encoder.{key} is {given!r}, but {source / SIDE_FILE} was trained with {expected!r}; "
                f"use the latter in the recipe{allow if key in get_args(Change) else ''}"
            )
    return saved
