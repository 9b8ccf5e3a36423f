"""Tokenizers: where a checkpoint has its files, and Hugging Face's tokenizer made of them."""

import json
from pathlib import Path

from pyserini_ance.encoders.family import Family, resolve_model
from pyserini_ance.encoders.foreign import TEVATRON_FOLDER
from pyserini_ance.encoders.released import SEED, form_of
from pyserini_ance.storage.files import read_json

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "spm.model", "sentencepiece.bpe.model")


def tokenizer_source(family: Family, source: str) -> str:
    """Where a tower's tokenizer is: in `base`, beside the weights, or, as Tevatron writes pairs, in the folder above.

    transformers makes an empty tokenizer for a folder that has none.
    """
    if family.base is not None:
        return resolve_model(family.base)
    path = Path(source)
    if not path.exists():
        return source
    for folder in (path, path.parent) if path.name in TEVATRON_FOLDER.values() else (path,):
        if any((folder / name).exists() for name in TOKENIZER_FILES):
            return str(folder)
    raise FileNotFoundError(
        f"{source} comes without a tokenizer; name a folder or hub model that has it: encoder.base=NAME (for BERT releases: bert-base-uncased)"
    )


def load_tokenizer(source: str):
    from transformers import AutoTokenizer

    tokenizer = _seed_tokenizer(source) or AutoTokenizer.from_pretrained(source)
    if not tokenizer.is_fast:
        raise ValueError(f"{source} has no fast tokenizer (tokenizer.json); save one with transformers first")
    return tokenizer


def read_alike(*tokenizers) -> bool:
    """Whether texts get the same ids from all of them; how they pad and truncate does not matter here."""
    written = [json.loads(tokenizer.backend_tokenizer.to_str()) for tokenizer in tokenizers]
    return all({**one, "truncation": None, "padding": None} == {**written[0], "truncation": None, "padding": None} for one in written)


def _seed_tokenizer(source: str):
    """SEED-Encoder's WordPiece as a Hugging Face tokenizer; None when `source` is not one of its folders."""
    if not (config := Path(source) / "config.json").exists() or form_of(SEED.kind, source, read_json(config)) is not SEED:
        return None
    from transformers import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(source, do_lower_case=False, strip_accents=False, mask_token="<mask>")
    if tokenizer.pad_token_id != (padding := read_json(config)["pad_token_id"]):
        raise ValueError(f"{source}: its vocab.txt has [PAD] at {tokenizer.pad_token_id}, its config.json pad_token_id {padding}; fetch both again")
    return tokenizer
