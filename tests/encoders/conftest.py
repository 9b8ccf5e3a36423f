"""Encoders made of the tiny models, and texts of very different lengths."""

import json
import shutil

import pytest
import torch
from helpers.released_checkpoints import LOWER, head_of

from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import save_encoder

LENGTHS = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48}}


@pytest.fixture(scope="session")
def config():
    """Settings over a model folder; lengths fit the tiny models unless `tokenization` is given."""
    given = {"tokenization": LENGTHS}
    return lambda model, **more: EncoderConfig.model_validate({"model": str(model), **given, **more})


@pytest.fixture(scope="session")
def start(config):
    return lambda model, seed=1, **settings: initial_encoder(config(model, **settings), seed)


@pytest.fixture
def saved(tmp_path):
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
def ance(config, tiny_roberta):
    """An encoder with a head that is not the identity anywhere."""
    encoder = initial_encoder(config(tiny_roberta, projection=16, layer_norm=True, tokenization=LOWER), 1)
    with torch.no_grad():
        for layer in head_of(encoder).values():
            layer.weight.normal_(), layer.bias.normal_()
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


@pytest.fixture
def to_hub(tmp_path, monkeypatch):
    """Put a folder into the hub's cache, which is empty before."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def put(folder, name):
        cache = tmp_path / "cache" / f"models--{name.replace('/', '--')}"
        (cache / "refs").mkdir(parents=True)
        (cache / "refs" / "main").write_text("0" * 40)
        shutil.copytree(folder, cache / "snapshots" / ("0" * 40))

    return put
