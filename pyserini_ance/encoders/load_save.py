"""Loading and saving of encoders: Hugging Face's files, and a side file with all settings that they lack.

Untied towers are saved in `queries/` and `documents/`, each a complete checkpoint. Towers that a run has
exported in DPR's format (`exports.py`) are loaded in the same way.
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import torch

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.family import MAY_DIFFER, SIDE_FILE, START_KEYS, START_SETTINGS, Family, TwoTower
from pyserini_ance.encoders.hub import find_model, is_local, resolve_model
from pyserini_ance.encoders.released import TEVATRON_FOLDER, seed_tokenizer
from pyserini_ance.encoders.sentence_transformers_import import has_two_towers, tower_source
from pyserini_ance.encoders.tokenization import TextTokenizer, have_equal_ids
from pyserini_ance.encoders.weights import check_weight_files
from pyserini_ance.recipe.components import component_class
from pyserini_ance.recipe.init_from import Change
from pyserini_ance.storage.files import read_json, utf8_path, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")


def tokenizer_source(family: Family, source: str) -> str:
    """The folder or hub name of a tower's tokenizer: `base`, the weights' folder, or (Tevatron) its parent.

    Raises FileNotFoundError for a folder without tokenizer files, for which transformers creates an empty
    tokenizer.
    """
    if family.base is not None:
        return resolve_model(family.base)
    path = Path(source)
    if not path.exists():
        return source
    for folder in (path, path.parent) if path.name in TEVATRON_FOLDER.values() else (path,):
        if any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)):
            return str(folder)
    raise FileNotFoundError(
        f"{source} has no tokenizer; pass a folder or hub model that has it: encoder.base=NAME "
        "(for BERT releases: bert-base-uncased)"
    )


def load_tokenizer(source: str) -> "PreTrainedTokenizerBase":
    """The fast tokenizer of a folder or hub name. Raises ValueError if there is none."""
    from transformers import AutoTokenizer

    with utf8_path(Path(source)) as path:
        tokenizer = seed_tokenizer(str(path)) or AutoTokenizer.from_pretrained(str(path))
    if not tokenizer.is_fast:
        raise ValueError(f"{source} has no fast tokenizer (tokenizer.json); save one with transformers first")
    return tokenizer


SIDE_FORMAT = 1
TOWERS: dict[Side, str] = {"query": "queries", "document": "documents"}
# Keys of the side file that are not settings of the family; some families have a dimension, too.
SIDE_KEYS = {"format", "dimension", "tower"}


def initial_encoder(family: Family, seed: int, device: str = "cpu") -> Encoder:
    """The encoder that a recipe starts from. Layers that its weights lack by design are drawn from `seed`."""
    sources = [_source(family, side) for side in (SIDES[:1] if family.tied else SIDES)]
    tokenizer_sources = [tokenizer_source(family, source) for source in sources]
    # One seed for both towers: with equal weights, the drawn layers are equal, too.
    towers = [
        family.build(source, side, torch.Generator().manual_seed(seed))
        for side, source in zip(SIDES, sources, strict=False)
    ]
    tokenizers = [load_tokenizer(source) for source in tokenizer_sources]
    if not have_equal_ids(*tokenizers):
        raise ValueError(
            f"{family.model} and {family.document_model} have different tokenizers; two towers need one "
            "vocabulary"
        )
    return Encoder(family, TwoTower(*towers), TextTokenizer(tokenizers[0], family.tokenization), device)


def initial_tokenizer(family: Family) -> TextTokenizer:
    tokenizer = load_tokenizer(tokenizer_source(family, _source(family, "query")))
    return TextTokenizer(tokenizer, family.tokenization)


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write the encoder into an existing empty folder, which the caller publishes afterwards."""
    family = encoder.family
    if encoder.towers.tied:
        _save_tower(encoder, "query", folder, family.model_dump(mode="json"))
        return
    for side, name in TOWERS.items():
        own = {"tied": True, "model": family.model_of(side), "document_model": None}
        alone = family.model_copy(update=own).model_dump(mode="json")
        (folder / name).mkdir()
        _save_tower(encoder, side, folder / name, {"tower": side, **alone})
    _write_side_file(encoder, folder, family.model_dump(mode="json"))


def load_encoder(folder: str | Path, device: str = "cpu") -> Encoder:
    """Load the encoder that `save_encoder` wrote.

    Raises FileNotFoundError if the folder or its side file is missing, RuntimeError if weights are missing.
    """
    family = family_of(folder)
    return _load(family, Path(folder), device)


def continue_encoder(family: Family, folder: str | Path, changes: Collection[str] = ()) -> Encoder:
    """Load the encoder that `save_encoder` wrote, to continue training with the settings of `family`.

    Lengths and dropout may differ from the saved ones, and `tied: false` splits tied towers. Settings
    listed in `changes` may differ, too. Raises ValueError for any other difference, and what `load_encoder`
    raises.
    """
    _check_settings(family, Path(folder), changes)
    encoder = _load(family.model_copy(update={"tied": family_of(folder).tied}), Path(folder), "cpu")
    if not family.tied:
        encoder.untie()
    return encoder


def _load(family: Family, folder: Path, device: str) -> Encoder:
    with utf8_path(folder) as path:
        folders = [path] if family.tied else [path / name for name in TOWERS.values()]
        for tower in folders:
            check_weight_files(str(tower))
        tokenizer = TextTokenizer(load_tokenizer(str(folders[0])), family.tokenization)
        return Encoder(family, TwoTower(*map(family.load, folders)), tokenizer, device)


def load_tower(folder: str | Path, side: Side, device: str = "cpu") -> Encoder:
    """Load the encoder for texts of one side; `folder` has an encoder, or only the tower of that side.

    Raises ValueError if it has only the tower of the other side.
    """
    saved_side = read_side_file(folder).get("tower", side)
    if saved_side != side:
        other = Path(folder).parent / TOWERS[side]
        raise ValueError(f"{folder} encodes a {saved_side}, not a {side}; use {other}")
    return load_encoder(tower_folder(folder, side), device)


def tower_folder(folder: str | Path, side: Side) -> Path:
    """The Hugging Face folder of a side's tower."""
    return Path(folder) if read_side_file(folder).get("tied", True) else Path(folder) / TOWERS[side]


def read_side_file(folder: str | Path) -> dict[str, Any]:
    """The settings of a saved encoder. Raises FileNotFoundError, or RuntimeError for another format."""
    path = Path(folder) / SIDE_FILE
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: {folder} is not an encoder saved by pyserini_ance. Pass RUN/model or a "
            "checkpoint's model folder."
        )
    side = read_json(path)
    if side.get("format") != SIDE_FORMAT:
        raise RuntimeError(f"{path} has format {side.get('format')!r}; this version reads {SIDE_FORMAT}")
    return side


def family_of(folder: str | Path) -> Family:
    side = read_side_file(folder)
    family = cast(type[Family], component_class("encoder", side["kind"]))
    settings = {
        key: value for key, value in side.items() if key not in SIDE_KEYS - family.model_fields.keys()
    }
    return family.model_validate({**settings, **dict.fromkeys(START_KEYS), "model": str(folder)})


def _source(family: Family, side: Side) -> str:
    """The folder or hub name from which a side's tower is built.

    Raises ValueError for a saved encoder with settings other than those of `family`, and for two towers if
    `family` is tied; also what `check_weight_files` raises.
    """
    model = find_model(family.model_of(side))
    source = Path(model)
    if (source / SIDE_FILE).exists():
        _check_settings(family, source, START_SETTINGS)
        tower = str(tower_folder(source, side))
    else:
        is_pair = (pair := source / TEVATRON_FOLDER[side]).is_dir()
        tower = str(pair) if is_pair else tower_source(model, side)
        if family.tied and (is_pair or has_two_towers(model)):
            raise ValueError(f"{model} has two towers; set encoder.tied=false")
    check_weight_files(tower)
    return tower


def _save_tower(encoder: Encoder, side: Side, folder: Path, about: dict[str, Any]) -> None:
    encoder.family.save(encoder.towers.tower(side), folder)
    # Pyserini's stock class `auto` truncates queries at the tokenizer's limit only.
    encoder.tokenizer.tokenizer.model_max_length = encoder.length_tokens(side)
    with utf8_path(folder) as path:
        encoder.tokenizer.tokenizer.save_pretrained(path)
    _write_side_file(encoder, folder, about)


def _write_side_file(encoder: Encoder, folder: Path, about: dict[str, Any]) -> None:
    write_json(folder / SIDE_FILE, {"format": SIDE_FORMAT, "dimension": encoder.dimension, **about})


def name_origin(folder: Path, family: Family) -> None:
    """Let the side files in `folder` name the weights that `family` starts from, but no path of this machine.

    For an encoder that others read: the weights that it was loaded from are those of a checkpoint.
    """
    for path in folder.rglob(SIDE_FILE):
        side = read_json(path)
        names = {"model": family.model_of(side.get("tower", "query")), "base": family.base}
        names |= {} if "tower" in side else {"document_model": family.document_model}
        public = {key: name for key, name in names.items() if name and not is_local(name)}
        settings = {key: value for key, value in side.items() if key not in START_KEYS}
        write_json(path, {**settings, **public})


def _check_settings(family: Family, source: Path, changes: Collection[str]) -> None:
    """Raises ValueError if a saved encoder has other settings than `family`: that would be a silent mistake.

    Lengths may differ: ANCE warms up at 128 tokens and trains at 512 (microsoft/ANCE, commands/).
    """
    saved = family_of(source)
    if family.tied and not saved.tied:
        cure = f"set encoder.tied=false, or start from {source / TOWERS['query']}"
        raise ValueError(f"{source} has two towers; {cure}")
    for key in [name for name in type(family).model_fields if name not in (*MAY_DIFFER, *changes)]:
        given: Any = getattr(family, key)
        expected: Any = getattr(saved, key, None)
        if key == "tokenization":
            given, expected = given.without_lengths(), expected.without_lengths()
        if given != expected:
            allow = f", or, if this is intended, set `allow_changes: [{key}]` under the stage's `init_from:`"
            raise ValueError(
                f"encoder.{key} is {given!r}, but {source / SIDE_FILE} was trained with {expected!r}; "
                f"use the latter in the recipe{allow if key in get_args(Change) else ''}"
            )
