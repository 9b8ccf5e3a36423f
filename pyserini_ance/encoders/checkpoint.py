"""A checkpoint folder: weights and tokenizer as Hugging Face writes them, and a side file with all that they leave out."""

from pathlib import Path

import torch

from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.family import Family, resolve_model
from pyserini_ance.encoders.tokenization import TextTokenizer
from pyserini_ance.encoders.two_tower import TwoTower
from pyserini_ance.recipe.parts import part_class
from pyserini_ance.storage.files import read_json, write_json

SIDE_FILE = "pyserini_ance.json"
SIDE_FORMAT = 1


def start_encoder(family: Family, seed: int, device: str = "cpu") -> Encoder:
    """The encoder that a recipe starts from. Parts that its weights lack by design are drawn from `seed`."""
    source = resolve_model(family.model)
    if (Path(source) / SIDE_FILE).exists():
        _refuse_other_settings(family, Path(source))
    tower = family.build(source, torch.Generator().manual_seed(seed))
    return Encoder(family, TwoTower(tower), TextTokenizer(_tokenizer(source), family.tokenization), device)


def start_tokenizer(family: Family) -> TextTokenizer:
    """The tokenizer that `start_encoder` would use, without loading weights."""
    return TextTokenizer(_tokenizer(resolve_model(family.model)), family.tokenization)


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write the encoder into an existing empty folder; whole only when the caller publishes it."""
    encoder.family.save(encoder.towers.queries, folder)
    # Pyserini's stock class `auto` knows no other cap for queries than the tokenizer's.
    encoder.tokenizer.tokenizer.model_max_length = encoder.length_tokens("query")
    encoder.tokenizer.tokenizer.save_pretrained(folder)
    write_json(folder / SIDE_FILE, {"format": SIDE_FORMAT, "dimension": encoder.dimension, **encoder.family.model_dump(mode="json")})


def load_encoder(folder: str | Path, device: str = "cpu") -> Encoder:
    """The encoder that `save_encoder` wrote.

    Raises FileNotFoundError when the folder or its side file is missing, RuntimeError when weights are.
    """
    return _load(family_of(folder), Path(folder), device)


def continue_encoder(family: Family, folder: str | Path) -> Encoder:
    """The encoder that `save_encoder` wrote, to be trained on as `family` says: on texts of its lengths, with its dropout.

    Raises ValueError when it reads texts otherwise, and what `load_encoder` raises.
    """
    _refuse_other_settings(family, Path(folder))
    return _load(family, Path(folder), "cpu")


def _load(family: Family, folder: Path, device: str) -> Encoder:
    tower = family.load(folder)
    return Encoder(family, TwoTower(tower), TextTokenizer(_tokenizer(str(folder)), family.tokenization), device)


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
    noted = {"format", "dimension"} - family.model_fields.keys()  # beside the family's settings; some have a dimension
    return family.model_validate({**{key: value for key, value in side.items() if key not in noted}, "model": str(folder)})


def _refuse_other_settings(family: Family, source: Path) -> None:
    """A checkpoint of ours knows how its texts are read; training it under other settings would be a silent mistake.

    Lengths may change: ANCE warms up at 128 tokens and trains at 512 (microsoft/ANCE, commands/).
    """
    saved = family_of(source)
    for key in [name for name in type(family).model_fields if name not in ("model", "head", "dropout")]:
        given, expected = getattr(family, key), getattr(saved, key, None)
        if key == "tokenization":
            given, expected = given.without_lengths(), expected.without_lengths()
        if given != expected:
            raise ValueError(
                f"encoder.{key} is {given!r}, but {source / SIDE_FILE} was trained with {expected!r}; use the latter in the recipe"
            )


def _tokenizer(source: str):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    if not tokenizer.is_fast:
        raise ValueError(f"{source} has no fast tokenizer (tokenizer.json); save one with transformers first")
    return tokenizer
