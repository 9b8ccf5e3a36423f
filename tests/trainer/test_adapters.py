"""A stage that trains adapters: the same gradients however it goes through a batch, and a chain of hashes."""

import numpy as np
import pytest
import torch
from helpers.stage_fixture import MIXED, Training
from helpers.stages import ANN, BATCH, LOSS, OWN
from safetensors.torch import load_file

from pyserini_ance.encoders.adapters import FILE
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.runs import checkpoint
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.trainer import trainer

LORA, AGAIN = {"r": 2}, {"gradient_checkpointing": True}
# Accumulated, by GradCache, and with layers that are computed again.
WAYS = [(OWN, {"chunk_queries": 2}), (BATCH, {"chunk_queries": 2}), (OWN, AGAIN)]
WAYS += [(BATCH, {"chunk_queries": 2, **AGAIN})]


def adapters_after(recipe, folder, terms, **stage) -> dict[str, torch.Tensor]:
    stage = {"steps": 3, "batch_queries": 6, "lora": LORA, "optimizer": {"learning_rate": 1e-3}, **stage}
    return load_file(Training(recipe, folder, terms, **stage).train().encoder / FILE)


@pytest.mark.parametrize("terms, other", WAYS)
def test_adapters_are_the_same_in_chunks_or_computed_again(without_dropout, tmp_path, terms, other):
    """Without dropout. Adam turns a gradient of zero, as that of A is at the first step, into rounding."""
    optimizer = {"kind": "lamb", "learning_rate": 1e-2}
    plain = adapters_after(without_dropout, tmp_path / "plain", terms, optimizer=optimizer)
    found = adapters_after(without_dropout, tmp_path / "other", terms, optimizer=optimizer, **other)
    assert any(float(weight.abs().max()) > 1e-3 for name, weight in plain.items() if "lora_B" in name)
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-6)


def test_layers_computed_again_repeat_the_dropout_of_adapters(small_recipe, tmp_path):
    """GradCache encodes a chunk twice, with the same masks."""
    dropped = {"lora": {**LORA, "dropout": 0.5}, "gradient_checkpointing": True, "chunk_queries": 6}
    one, other = (adapters_after(small_recipe, tmp_path / name, BATCH, **dropped) for name in ("a", "b"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    without = adapters_after(small_recipe, tmp_path / "without", BATCH, **{**dropped, "lora": LORA})
    assert any(not torch.equal(one[name], without[name]) for name in one)


def test_frozen_layers_in_the_precision_of_training_give_the_same_bits(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "resolve_precision", lambda *_: "bf16")
    stage = Training(small_recipe, tmp_path / "kept", OWN, lora=LORA).stage()
    linears = [each for each in stage.encoder.towers.modules() if type(each) is torch.nn.Linear]
    assert {each.weight.dtype for each in linears if not each.weight.requires_grad} == {torch.bfloat16}
    assert {each.dtype for each in stage.encoder.towers.parameters() if each.requires_grad} == {torch.float32}
    kept = load_file(stage.train().encoder / FILE)
    monkeypatch.setattr(trainer, "keep_frozen_in", lambda *_: None)
    whole = load_file(Training(small_recipe, tmp_path / "whole", OWN, lora=LORA).train().encoder / FILE)
    assert all(torch.equal(kept[name], whole[name]) for name in whole)


@pytest.mark.parametrize("trainable", ["both", "query_tower"])
def test_tables_are_mined_with_merged_weights_and_named_by_their_hashes(small_recipe, tmp_path, trainable):
    terms = MIXED if trainable == "both" else {"query": {"negatives": [ANN], "loss": LOSS}}
    more = {"refresh": {"every_steps": 4}, "save_every_steps": 3, "trainable": trainable}
    training = Training(small_recipe, tmp_path, terms, lora=LORA, **more)
    mined = []

    def make(request):
        training.make(request)
        mined.append(request)

    result = training.train(make)
    assert result.query_weights != training.start.query_weights
    assert (result.document_weights == training.start.document_weights) == (trainable == "query_tower")
    start, end = load_encoder(training.start.encoder), load_encoder(result.encoder)
    are_equal = np.array_equal(start.encode(["a text"], "document"), end.encode(["a text"], "document"))
    assert are_equal == (trainable == "query_tower")
    assert not np.array_equal(start.encode(["a text"]), end.encode(["a text"]))
    adopted = [record["weights"] for record in training.decisions("adopt")]
    assert adopted == [request.weights for request in mined] and len(set(adopted)) == 3
    assert adopted[0] == training.start.weights
    assert Checkpoint.open(training.run.checkpoint("a", 10)).hashes == result.hashes
    assert checkpoint.weights_of(result.encoder) == result.weights
    assert checkpoint.document_weights_of(result.encoder) == result.document_weights


def test_a_stage_resumes_with_its_adapters_and_moments(small_recipe, tmp_path):
    settings = {"lora": {**LORA, "dropout": 0.1}, "refresh": {"every_steps": 4}, "save_every_steps": 4}
    expected = Training(small_recipe, tmp_path / "whole", MIXED, **settings).train()
    training = Training(small_recipe, tmp_path / "stopped", MIXED, **settings)

    def stop(request):
        if request.step == 8:
            raise KeyboardInterrupt
        training.make(request)

    with pytest.raises(KeyboardInterrupt):
        training.train(stop)
    assert training.train(resume=True).hashes == expected.hashes
