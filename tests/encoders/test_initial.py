import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pyserini_ance.encoders.load_save import load_encoder


def copy(folder, to, change):
    """A copy of a model folder whose weights went through a function."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    weights = to / "model.safetensors"
    save_file(change(load_file(weights)), weights, {"format": "pt"})
    return to


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_trained_in_full(start, tiny_bert, tmp_path, stored):
    folder = copy(tiny_bert, tmp_path, lambda old: {name: value.to(stored) for name, value in old.items()})
    assert {parameter.dtype for parameter in start(folder).towers.parameters()} == {torch.float32}


def test_a_pooler_that_the_weights_lack_is_drawn_from_the_seed(start, tiny_bert, tmp_path):
    folder = copy(tiny_bert, tmp_path, lambda old: {name: old[name] for name in old if "pooler" not in name})
    state = torch.get_rng_state()
    first, again, other = (start(folder, seed=seed).towers.state_dict() for seed in (1, 1, 2))
    name = "queries.layers.0.model.pooler.dense.weight"
    assert torch.equal(first[name], again[name]) and not torch.equal(first[name], other[name])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_lost_weight_and_a_head_that_would_be_left_out_are_refused(
    start, tiny_bert, tiny_roberta, tmp_path
):
    lost, head = "encoder.layer.1.output.dense.weight", {"embeddingHead.weight": torch.zeros(8, 32)}
    folder = copy(tiny_bert, tmp_path / "a", lambda old: {name: old[name] for name in old if name != lost})
    with pytest.raises(RuntimeError, match=f"{folder} lacks 1 weights of the encoder, first {lost}"):
        start(folder)
    with pytest.raises(RuntimeError, match=r"1 weights that this encoder lacks, first embeddingHead.weight"):
        start(copy(tiny_roberta, tmp_path / "b", lambda old: {**old, **head}))


@pytest.mark.parametrize("tied", [True, False])
def test_a_projection_gives_vectors_of_its_size(start, tiny_bert, saved, records, tied):
    settings = {"projection": 8, "normalize": "query", "tied": tied}
    encoder = start(tiny_bert, **settings)
    with torch.no_grad():
        encoder.towers.documents.layers[2].linear.bias.fill_(0.5)
    plain, folder = start(tiny_bert), saved(encoder)
    linear = load_file((folder if tied else folder / "documents") / "2_Dense" / "model.safetensors")
    weight, bias = linear["linear.weight"], linear["linear.bias"]
    documents = plain.encode(records, "document") @ weight.numpy().T + bias.numpy()
    assert weight.shape == (8, 32) and weight.std().item() == pytest.approx(0.02, rel=0.2)
    np.testing.assert_allclose(encoder.encode(records, "document"), documents, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(records, "query"), axis=1), 1, atol=1e-5)
    loaded = load_encoder(folder)
    assert loaded.dimension == 8
    for side in ("query", "document"):
        np.testing.assert_array_equal(loaded.encode(records, side), encoder.encode(records, side))


def test_a_projection_that_a_checkpoint_has_is_trained_on_and_not_left_out(start, tiny_bert, saved):
    folder = saved(start(tiny_bert, projection=8))
    started = start(folder, projection=8, seed=2)
    saved_weight = load_file(folder / "2_Dense" / "model.safetensors")["linear.weight"]
    for encoder in (started, start(folder, projection=None)):
        assert torch.equal(encoder.towers.queries.layers[2].linear.weight, saved_weight)
    with pytest.raises(ValueError, match=r"encoder.projection is 4, but .* was trained with 8"):
        start(folder, projection=4)
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="Could not find 'model.safetensors'"):
        load_encoder(folder)
