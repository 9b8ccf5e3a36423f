"""A checkpoint folder: weights and tokenizer as Hugging Face writes them, and a side file with all that they leave out.

Untied towers lie in `queries/` and `documents/` below it, each a whole checkpoint of its own. A run exports some of them in DPR's form
(`dpr.py`), which is read here all the same.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, get_args

import torch

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.family import SIDE_FILE, Family, resolve_model
from pyserini_ance.encoders.foreign import TEVATRON_FOLDER
from pyserini_ance.encoders.tokenization import TextTokenizer
from pyserini_ance.encoders.tokenizer_files import load_tokenizer, read_alike, tokenizer_source
from pyserini_ance.encoders.two_tower import TwoTower
from pyserini_ance.recipe.parts import part_class
from pyserini_ance.recipe.start import Change
from pyserini_ance.storage.files import read_json, write_json

SIDE_FORMAT = 1
TOWERS: dict[Side, str] = {"query": "queries", "document": "documents"}
MAY_DIFFER = ("model", "document_model", "base", "tied", "head", "dropout")  # between a checkpoint and the recipe that starts from it
NOTED = {"format", "dimension", "tower"}  # in the side file, beside the family's settings; some families have a dimension


def start_encoder(family: Family, seed: int, device: str = "cpu") -> Encoder:
    """The encoder that a recipe starts from. Parts that its weights lack by design are drawn from `seed`."""
    sources = [_source(family, side) for side in (SIDES[:1] if family.tied else SIDES)]
    readers = [tokenizer_source(family, source) for source in sources]
    # The same seed for both: towers that start from the same weights are alike in what is drawn, too.
    towers = [family.build(source, side, torch.Generator().manual_seed(seed)) for side, source in zip(SIDES, sources, strict=False)]
    tokenizers = [load_tokenizer(reader) for reader in readers]
    if not read_alike(*tokenizers):
        raise ValueError(f"{family.model} and {family.document_model} have different tokenizers; two towers need one vocabulary")
    return Encoder(family, TwoTower(*towers), TextTokenizer(tokenizers[0], family.tokenization), device)


def start_tokenizer(family: Family) -> TextTokenizer:
    """The tokenizer that `start_encoder` would use, without loading weights."""
    return TextTokenizer(load_tokenizer(tokenizer_source(family, _source(family, "query"))), family.tokenization)


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write the encoder into an existing empty folder; whole only when the caller publishes it."""
    family = encoder.family
    if encoder.towers.tied:
        _save_tower(encoder, "query", folder, family.model_dump(mode="json"))
        return
    for side, name in TOWERS.items():
        alone = family.model_copy(update={"tied": True, "model": family.model_of(side), "document_model": None})
        (folder / name).mkdir()
        _save_tower(encoder, side, folder / name, {"tower": side, **alone.model_dump(mode="json")})
    _write_side_file(encoder, folder, family.model_dump(mode="json"))


def load_encoder(folder: str | Path, device: str = "cpu") -> Encoder:
    """The encoder that `save_encoder` wrote.

    Raises FileNotFoundError when the folder or its side file is missing, RuntimeError when weights are.
    """
    family = family_of(folder)
    return _load(family, Path(folder), device)


def continue_encoder(family: Family, folder: str | Path, changes: Collection[str] = ()) -> Encoder:
    """The encoder that `save_encoder` wrote, to be trained on as `family` says: on texts of its lengths, with its dropout, and with
    `tied: false` in two towers, which it may have had as one. The settings named in `changes` may be others, too.

    Raises ValueError when it reads texts otherwise, and what `load_encoder` raises.
    """
    _refuse_other_settings(family, Path(folder), changes)
    encoder = _load(family.model_copy(update={"tied": family_of(folder).tied}), Path(folder), "cpu")
    if not family.tied:
        encoder.untie()
    return encoder


def _load(family: Family, folder: Path, device: str) -> Encoder:
    folders = [folder] if family.tied else [folder / name for name in TOWERS.values()]
    tokenizer = TextTokenizer(load_tokenizer(str(folders[0])), family.tokenization)
    return Encoder(family, TwoTower(*map(family.load, folders)), tokenizer, device)


def load_tower(folder: str | Path, side: Side, device: str = "cpu") -> Encoder:
    """The encoder for texts of one side alone; `folder` holds an encoder, or only that side's tower.

    Raises ValueError when it holds only the other's.
    """
    of = read_side_file(folder).get("tower", side)
    if of != side:
        raise ValueError(f"{folder} encodes a {of}, not a {side}; use {Path(folder).parent / TOWERS[side]}")
    return load_encoder(tower_folder(folder, side), device)


def tower_folder(folder: str | Path, side: Side) -> Path:
    """Where the tower of a side lies, as a Hugging Face folder of its own."""
    return Path(folder) if read_side_file(folder).get("tied", True) else Path(folder) / TOWERS[side]


def read_side_file(folder: str | Path) -> dict:
    path = Path(folder) / SIDE_FILE
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: {folder} is not an encoder saved by pyserini_ance. Expected RUN/model or a checkpoint's model folder."
        )
    side = read_json(path)
    if side.get("format") != SIDE_FORMAT:
        raise RuntimeError(f"{path} has format {side.get('format')!r}; this version reads {SIDE_FORMAT}")
    return side


def family_of(folder: str | Path) -> Family:
    side = read_side_file(folder)
    family = part_class("encoder", side["kind"])
    settings = {key: value for key, value in side.items() if key not in NOTED - family.model_fields.keys()}
    return family.model_validate({**settings, "model": str(folder), "document_model": None, "base": None})


def _source(family: Family, side: Side) -> str:
    """What the tower of a side is built from. A checkpoint of ours must have the settings of `family`, and a pair stays one."""
    source = Path(resolve_model(family.model_of(side)))
    if (pair := source / TEVATRON_FOLDER[side]).is_dir():
        if family.tied:
            raise ValueError(f"{source} has two towers, {' and '.join(TEVATRON_FOLDER.values())}; set encoder.tied=false")
        return str(pair)
    if not (source / SIDE_FILE).exists():
        return str(source)
    _refuse_other_settings(family, source)
    return str(tower_folder(source, side))


def _save_tower(encoder: Encoder, side: Side, folder: Path, about: dict[str, Any]) -> None:
    encoder.family.save(encoder.towers.tower(side), folder)
    # Pyserini's stock class `auto` knows no other cap for queries than the tokenizer's.
    encoder.tokenizer.tokenizer.model_max_length = encoder.length_tokens(side)
    encoder.tokenizer.tokenizer.save_pretrained(folder)
    _write_side_file(encoder, folder, about)


def _write_side_file(encoder: Encoder, folder: Path, about: dict[str, Any]) -> None:
    write_json(folder / SIDE_FILE, {"format": SIDE_FORMAT, "dimension": encoder.dimension, **about})


def _refuse_other_settings(family: Family, source: Path, changes: Collection[str] = ()) -> None:
    """A checkpoint of ours knows how its texts are read; training it under other settings would be a silent mistake.

    Lengths may change: ANCE warms up at 128 tokens and trains at 512 (microsoft/ANCE, commands/).
    """
    saved = family_of(source)
    if family.tied and not saved.tied:
        raise ValueError(f"{source} has two towers; set encoder.tied=false, or start from {source / TOWERS['query']}")
    for key in [name for name in type(family).model_fields if name not in (*MAY_DIFFER, *changes)]:
        given, expected = getattr(family, key), getattr(saved, key, None)
        if key == "tokenization":
            given, expected = given.without_lengths(), expected.without_lengths()
        if given != expected:
            raise ValueError(
                f"encoder.{key} is {given!r}, but {source / SIDE_FILE} was trained with {expected!r}; use the latter in the recipe{_cure(key)}"
            )


def _cure(key: str) -> str:
    return f", or, where this is meant, say so by `changes: [{key}]` under the stage's `start:`" if key in get_args(Change) else ""
