"""Pyserini's own encoders, unmodified, load encoders of some layers and give the same vectors."""

import json

import numpy as np
import pytest
import torch
from helpers.small_set import TINY_SHAPE
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, RobertaConfig, RobertaModel

from pyserini_ance.encoders.load_save import initial_encoder, load_encoder, save_encoder
from pyserini_ance.recipe.components import component_class

TEXTS = ["The Retriever", "Reads some LONG texts, such as this one", "the"]
SHAPE = {**TINY_SHAPE, "num_hidden_layers": 4}
SETTINGS = {
    "auto": {"kind": "transformer", "pooling": "mean", "normalize": True, "layers": [0, 3]},
    "ance": {"kind": "roberta_ance", "head": "new", "dimension": 768, "layers": [1, 3]},
}
ENCODE = """
import json, sys
import numpy as np
from pyserini_ance.pyserini_bridge.encoder_classes import register
register()
from pyserini.encode import AnceDocumentEncoder, AutoDocumentEncoder, AutoQueryEncoder
auto, ance, output = sys.argv[1:]
texts = json.loads(sys.stdin.read())
documents = AutoDocumentEncoder(auto, device="cpu", pooling="mean", l2_norm=True)
queries = AutoQueryEncoder(auto, device="cpu", pooling="mean", l2_norm=True)
np.savez(
    output,
    auto=documents.encode(texts, max_length=64),
    queries=[queries.encode(text) for text in texts],
    ance=AnceDocumentEncoder(ance, device="cpu").encode(texts, max_length=64),
)
"""


@pytest.fixture(scope="module")
def folders(bert, roberta, tmp_path_factory):
    """Saved encoders of two layers, by Pyserini's class."""
    saved = {}
    for name, tokenizer in (("auto", bert), ("ance", roberta)):
        start, saved[name] = tmp_path_factory.mktemp("start"), tmp_path_factory.mktemp(name)
        AutoTokenizer.from_pretrained(tokenizer).save_pretrained(start)
        written = AutoModel.from_pretrained(tokenizer).config.to_dict() | SHAPE
        torch.manual_seed(0)
        model = BertModel(BertConfig(**written)) if name == "auto" else RobertaModel(RobertaConfig(**written))
        model.save_pretrained(start)
        lengths = {"query": {"length_tokens": 64}, "document": {"length_tokens": 64}}
        settings = {**SETTINGS[name], "model": str(start), "tokenization": lengths}
        family = component_class("encoder", settings["kind"]).model_validate(settings)
        save_encoder(initial_encoder(family, seed=1), saved[name])
    return saved


@pytest.fixture(scope="module")
def vectors(child, folders, tmp_path_factory):
    output = tmp_path_factory.mktemp("vectors") / "vectors.npz"
    child(ENCODE, folders["auto"], folders["ance"], output, input=json.dumps(TEXTS))
    return np.load(output)


@pytest.mark.parametrize(
    ("name", "of", "side"),
    [("auto", "auto", "document"), ("queries", "auto", "query"), ("ance", "ance", "document")],
)
def test_vectors_are_the_same(folders, vectors, name, of, side):
    ours = load_encoder(folders[of]).encode(TEXTS, side)
    assert ours.shape[1] == {"auto": 32, "ance": 768}[of]
    np.testing.assert_allclose(vectors[name], ours, atol=1e-5)
