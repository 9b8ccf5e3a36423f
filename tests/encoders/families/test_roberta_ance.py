import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoTokenizer, RobertaModel

from pyserini_ance.encoders.load_save import SIDE_FILE, load_encoder

HEAD = ["embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias"]
DIMENSIONS = [16, 768]


@pytest.fixture(params=DIMENSIONS)
def encoder(request, start, tiny_roberta):
    return start("roberta_ance", tiny_roberta, head="new", dimension=request.param, seed=3)


def edit_weights(folder, change) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def foreign(folder):
    """As if another program had written the folder: no side file, nothing of ours in the configuration."""
    (folder / SIDE_FILE).unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if key != "head_dimension"})
    )
    return folder


DANCE = {"normalize": True, "layer_norm": "query"}


@pytest.mark.parametrize(
    ("settings", "side", "layer_norm", "l2"),
    [
        ({}, "query", True, False),
        ({"normalize": True}, "document", True, True),
        (DANCE, "query", True, True),
        (DANCE, "document", False, True),
        ({"normalize": "query"}, "document", True, False),
    ],
)
def test_vectors_against_a_written_out_reference(
    start, tiny_roberta, records, settings, side, layer_norm, l2
):
    encoder = start("roberta_ance", tiny_roberta, head="new", dimension=16, **settings, seed=3)
    torch.manual_seed(0)  # the tests before leave other states, with which rounding may exceed the bound
    with torch.no_grad():  # a head that is not the identity anywhere
        for parameter in (encoder.towers.queries.model.embeddingHead, encoder.towers.queries.model.norm):
            parameter.weight.normal_(), parameter.bias.normal_()
    weights = encoder.towers.queries.model.state_dict()
    roberta = RobertaModel.from_pretrained(tiny_roberta).eval()
    tokenizer, length = AutoTokenizer.from_pretrained(tiny_roberta), 24 if side == "query" else 48
    for record, vector in zip(records, encoder.encode(records, side), strict=True):
        text = record["text"] if side == "query" else f"{record['title']} {record['text']}"
        inputs = tokenizer(text.strip(), truncation=True, max_length=length, return_tensors="pt")
        with torch.no_grad():
            first = roberta(**inputs).last_hidden_state[0, 0]
        projected = weights["embeddingHead.weight"] @ first + weights["embeddingHead.bias"]
        centred = projected - projected.mean()
        expected = (
            centred / (centred.square().mean() + 1e-5).sqrt() * weights["norm.weight"] + weights["norm.bias"]
        )
        expected = expected if layer_norm else projected
        expected = functional.normalize(expected, dim=0) if l2 else expected
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("published", [lambda folder: folder, foreign])
def test_a_saved_or_published_checkpoint_can_be_started_from(encoder, saved, start, records, published):
    folder = published(saved(encoder))
    started = start("roberta_ance", folder, dimension=encoder.dimension, seed=4)
    np.testing.assert_array_equal(started.encode(records, "document"), encoder.encode(records, "document"))


def test_both_weight_files_are_written_and_equal(encoder, saved):
    folder = saved(encoder)
    safe = load_file(folder / "model.safetensors")
    pickled = torch.load(folder / "pytorch_model.bin", weights_only=True)
    assert safe.keys() == pickled.keys()
    assert all(torch.equal(safe[name], pickled[name]) for name in safe)
    assert set(HEAD) < safe.keys()
    assert {name.split(".")[0] for name in safe} == {"roberta", "embeddingHead", "norm"}
    assert json.loads((folder / "config.json").read_text())["model_type"] == "roberta"


@pytest.mark.parametrize("lost", [HEAD, HEAD[3:], ["roberta.encoder.layer.0.output.dense.bias"]])
def test_a_checkpoint_that_lost_a_weight_is_refused(encoder, saved, start, lost):
    folder = saved(encoder)
    edit_weights(folder, lambda weights: {name: value for name, value in weights.items() if name not in lost})
    message = f"{folder} is not a complete ANCE checkpoint: no {sorted(lost)[0]}"
    with pytest.raises(RuntimeError, match=message):
        load_encoder(folder)
    with pytest.raises(RuntimeError, match=message):
        start("roberta_ance", folder, dimension=encoder.dimension)


def test_a_new_head_is_drawn_from_the_seed(start, tiny_roberta):
    first, again, other = (
        start("roberta_ance", tiny_roberta, head="new", seed=seed).towers.queries.model.state_dict()
        for seed in (1, 1, 2)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    drawn = first["embeddingHead.weight"]
    assert not torch.equal(drawn, other["embeddingHead.weight"])
    assert drawn.shape == (768, 32) and drawn.std().item() == pytest.approx(0.02, rel=0.05)
    assert first["norm.weight"].eq(1).all()
    assert first["norm.bias"].eq(0).all() and first["embeddingHead.bias"].eq(0).all()
    body = RobertaModel.from_pretrained(tiny_roberta, add_pooling_layer=False).state_dict()
    assert all(torch.equal(first[f"roberta.{name}"], value) for name, value in body.items())
