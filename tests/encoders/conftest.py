"""Encoders made of the tiny models, and texts of very different lengths."""

import pytest

from pyserini_ance.encoders.checkpoint import save_encoder
from pyserini_ance.encoders.family import Family
from pyserini_ance.recipe.parts import part_class

LENGTHS = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48}}


@pytest.fixture(scope="session")
def family():
    """A family of a kind over a model folder; lengths fit the tiny models unless `tokenization` is given."""

    def make(kind: str, model, **settings) -> Family:
        return part_class("encoder", kind).model_validate({"kind": kind, "model": str(model), "tokenization": LENGTHS, **settings})

    return make


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
    words = "the quick brown fox jumps over a lazy dog and then some more".split()
    texts = ["", "a", "The Fox", *(" ".join(words[i % 5 : i % 5 + 1 + i % 8]) for i in range(8)), "long words " * 40]
    return [{"title": f"title {i}" if i % 3 else "", "text": text} for i, text in enumerate(texts)]
