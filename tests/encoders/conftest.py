"""Encoders made of the tiny models, and texts of very different lengths."""

import json
import shutil

import pytest
import torch
from helpers.released_checkpoints import LOWER

from pyserini_ance.encoders.family import Family
from pyserini_ance.encoders.load_save import initial_encoder, save_encoder
from pyserini_ance.recipe.components import component_class

LENGTHS = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48}}


@pytest.fixture(scope="session")
def family():
    """A family of a kind over a model folder; lengths fit the tiny models unless `tokenization` is given."""

    def make(kind: str, model, **settings) -> Family:
        return component_class("encoder", kind).model_validate(
            {"kind": kind, "model": str(model), "tokenization": LENGTHS, **settings}
        )

    return make


@pytest.fixture(scope="session")
def start(family):
    """Start an encoder of a kind over a model folder."""
    return lambda kind, model, seed=1, **settings: initial_encoder(family(kind, model, **settings), seed)


@pytest.fixture
def saved(tmp_path):
    """Save an encoder into a folder of its own; returns the folder."""

    def save(encoder):
        folder = tmp_path / f"saved-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        save_encoder(encoder, folder)
        return folder

    return save


@pytest.fixture(scope="session")
def records() -> list[dict[str, str]]:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and"]
    drawn = (" ".join(words[i % 5 : i % 5 + 1 + i % 8]) for i in range(8))
    texts = ["", "a", "The Fox", *drawn, "long words " * 40]
    return [{"title": f"title {i}" if i % 3 else "", "text": text} for i, text in enumerate(texts)]


@pytest.fixture(scope="session")
def ance(family, tiny_roberta):
    """An encoder with a head that is not the identity anywhere."""
    encoder = initial_encoder(
        family("roberta_ance", tiny_roberta, head="new", dimension=16, tokenization=LOWER), seed=1
    )
    with torch.no_grad():
        for parameter in (encoder.towers.queries.model.embeddingHead, encoder.towers.queries.model.norm):
            parameter.weight.normal_(), parameter.bias.normal_()
    return encoder


@pytest.fixture
def release(tiny_roberta, tmp_path):
    """A folder with these weights, this configuration and RoBERTa's tokenizer files."""

    def write(
        weights: dict[str, torch.Tensor],
        called: str = "release",
        without: tuple[str, ...] = ("architectures",),
        **config,
    ):
        ignored = shutil.ignore_patterns("*.safetensors")
        folder = shutil.copytree(tiny_roberta, tmp_path / called, ignore=ignored)
        written = json.loads((tiny_roberta / "config.json").read_text())
        written = {**{key: value for key, value in written.items() if key not in without}, **config}
        (folder / "config.json").write_text(json.dumps(written))
        torch.save(weights, folder / "pytorch_model.bin")
        return folder

    return write
