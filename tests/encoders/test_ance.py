import json

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import HEAD, weights_of
from safetensors.torch import load_file, save_file
from transformers import RobertaModel

from pyserini_ance.encoders.ance import STOCK_FILE, write_ance
from pyserini_ance.encoders.config import SIDE_FILE, TOWERS
from pyserini_ance.encoders.load_save import load_encoder

DIMENSIONS = [16, 768]
LOST = {"linear.bias": "2_Dense", "norm.weight": "3_LayerNorm", "encoder.layer.0.output.dense.bias": "."}


@pytest.fixture(params=DIMENSIONS)
def encoder(request, start, tiny_roberta):
    return start(tiny_roberta, projection=request.param, layer_norm=True, seed=3)


def foreign(folder):
    """As if another program had written the folder: no side file."""
    (folder / SIDE_FILE).unlink()
    return folder


@pytest.mark.parametrize("published", [lambda folder: folder, foreign])
def test_a_saved_or_published_checkpoint_can_be_started_from(encoder, saved, start, records, published):
    folder = published(saved(encoder))
    started = start(folder, projection=encoder.dimension, seed=4)
    np.testing.assert_array_equal(started.encode(records, "document"), encoder.encode(records, "document"))


def test_the_file_for_pyserini_has_the_names_and_weights_of_a_release(encoder, saved):
    folder = saved(encoder)
    assert write_ance(folder, "query")
    written, weights = torch.load(folder / STOCK_FILE, weights_only=True), weights_of(encoder)
    assert written.keys() == weights.keys() >= set(HEAD)
    assert all(torch.equal(value, weights[name]) for name, value in written.items())
    assert json.loads((folder / "config.json").read_text())["model_type"] == "roberta"


def test_each_tower_of_a_pair_has_its_file(start, tiny_roberta, saved):
    folder = saved(start(tiny_roberta, projection=16, layer_norm="document", tied=False))
    for side, name in TOWERS.items():
        written = write_ance(folder / name, side)
        assert written == (folder / name / STOCK_FILE).exists() == (side == "document")


def test_what_has_no_head_of_ance_has_no_such_file(start, tiny_bert, tiny_roberta, saved):
    settings = {"layer_norm": True, "projection": 16}
    for encoder in (start(tiny_roberta), start(tiny_bert, **settings), start(tiny_roberta, layer_norm=True)):
        folder = saved(encoder)
        assert not write_ance(folder, "query") and not (folder / STOCK_FILE).exists()


@pytest.mark.parametrize("lost, module", LOST.items())
def test_a_checkpoint_that_lost_a_weight_is_refused(encoder, saved, start, lost, module):
    folder = saved(encoder)
    file = folder / module / "model.safetensors"
    save_file({k: v for k, v in load_file(file).items() if k != lost}, file, {"format": "pt"})
    for load in (load_encoder, start):
        with pytest.raises(RuntimeError, match=lost):
            load(folder)


def test_a_new_head_is_drawn_from_the_seed(start, tiny_roberta):
    settings = {"projection": 768, "layer_norm": True}
    first, again, other = (weights_of(start(tiny_roberta, **settings, seed=seed)) for seed in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    drawn = first["embeddingHead.weight"]
    assert not torch.equal(drawn, other["embeddingHead.weight"])
    assert drawn.shape == (768, 32) and drawn.std().item() == pytest.approx(0.02, rel=0.05)
    assert first["norm.weight"].eq(1).all()
    assert first["norm.bias"].eq(0).all() and first["embeddingHead.bias"].eq(0).all()
    body = RobertaModel.from_pretrained(tiny_roberta, add_pooling_layer=False).state_dict()
    assert all(torch.equal(first[f"roberta.{name}"], value) for name, value in body.items())
