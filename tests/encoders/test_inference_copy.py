import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.small_set import TINY_SHAPE
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, T5EncoderModel

from pyserini_ance.encoders import inference_copy as module
from pyserini_ance.encoders.inference_copy import (
    FEWEST_TOKENS,
    PackedLinear,
    faster_copy,
    inference_copy,
    packs_linears,
    transformers_in,
)

IDS = torch.randint(5, 60, (6, 20), generator=torch.Generator().manual_seed(0))
needs_packing = pytest.mark.skipif(not packs_linears(torch.bfloat16), reason="nothing to pack with")
# By how much a packed layer, and a model of them, may differ from nn.Linear's.
TOLERANCE = {torch.bfloat16: (0.01, 0.1), torch.float32: (1e-5, 1e-4)}
# What torch's operators may be like where packed layers would be wrong.
OPERATORS = {"missing": {}, "another shape": {"_linear_pointwise": lambda *_: torch.zeros(())}}
OPERATORS["wrong"] = {"_linear_pointwise": lambda x, w, b, *_: functional.linear(x, w.to_dense())}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "feed_forward_proj": "gated-gelu"}
T5["num_layers"] = 2
DEBERTA = {**TINY_SHAPE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
DISTILBERT = {"dim": 32, "n_heads": 4}
OTHER_MODELS = [("t5", T5), ("deberta", DEBERTA), ("albert", TINY_SHAPE), ("distilbert", DISTILBERT)]


@pytest.fixture(params=TOLERANCE, ids=["bf16", "fp32"])
def dtype(request, monkeypatch):
    """A precision in which layers are packed, as on AMD's processors."""
    monkeypatch.setenv("PYSERINI_ANCE_PROCESSOR", "zen3")
    if not packs_linears(request.param):
        pytest.skip("this processor or torch does not pack")
    return request.param


@pytest.fixture(params=["plain", "ance"])
def encoder(request, start, tiny_bert, tiny_roberta):
    is_ance = request.param == "ance"
    model, more = (tiny_roberta, {"layer_norm": True}) if is_ance else (tiny_bert, {})
    encoder = start(model, projection=16, **more)
    encoder.towers.eval()
    return encoder


def linears(tower: nn.Module) -> list[nn.Linear]:
    [model] = [m for m in transformers_in(tower) if len(transformers_in(m)) == 1]
    return [layer for layer in model.modules() if type(layer) is nn.Linear]


def vectors(tower: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return tower("document", IDS, torch.ones_like(IDS))


@needs_packing
def test_packed_layers_compute_as_those_of_the_copy_without_them(encoder, monkeypatch, dtype):
    """The copy without them is compared in test_encoder.py."""
    tower = encoder.towers.queries
    packed = inference_copy(tower, dtype)
    monkeypatch.setattr(module, "packs_linears", lambda dtype: False)
    plain = inference_copy(tower, dtype)
    count = sum(isinstance(layer, PackedLinear) for layer in packed.modules())
    assert (count, len(linears(packed))) == (len(linears(tower)), 0) and len(linears(plain)) == count > 0
    rounding = TOLERANCE[dtype][1]
    torch.testing.assert_close(vectors(packed), vectors(plain), rtol=rounding, atol=rounding)
    assert torch.equal(vectors(plain), vectors(tower)) is (dtype == torch.float32)


def test_the_tower_stays_and_shares_what_follows_its_transformer(encoder):
    tower = encoder.towers.queries
    before = {id(weight): weight.dtype for weight in tower.parameters()}
    copy = inference_copy(tower, torch.bfloat16)
    assert {id(weight): weight.dtype for weight in tower.parameters()} == before
    dtypes = {(id(weight) in before, weight.dtype) for weight in copy.parameters()}
    assert dtypes == {(True, torch.float32), (False, torch.bfloat16)}


class Whole(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, side, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


@needs_packing
@pytest.mark.parametrize("kind, shape", OTHER_MODELS)
def test_other_models_compute_alike_with_packed_layers(monkeypatch, dtype, kind, shape):
    """T5 and DeBERTa read weights themselves, ALBERT has one layer at several depths."""
    config = AutoConfig.for_model(kind, vocab_size=64, **shape)
    model = Whole((T5EncoderModel if kind == "t5" else AutoModel.from_config)(config).eval())
    packed = inference_copy(model, dtype)
    monkeypatch.setattr(module, "packs_linears", lambda dtype: False)
    plain = inference_copy(model, dtype)
    assert any(isinstance(layer, PackedLinear) for layer in packed.modules())
    rounding = TOLERANCE[dtype][1]
    torch.testing.assert_close(vectors(packed), vectors(plain), rtol=rounding, atol=rounding)


def test_calls_share_a_copy_once_an_encoder_is_optimized(encoder, records, monkeypatch, dtype):
    precision, made = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype], []
    monkeypatch.setattr(module, "inference_copy", lambda *given: made.append(0) or inference_copy(*given))
    monkeypatch.setattr(module, "FEWEST_TOKENS", 0)

    def encode() -> np.ndarray:
        return encoder.encode(records, "document", precision)

    before = [encode(), encode()]
    assert len(made) == 2
    assert encoder.optimize_for_inference() is encoder
    before += [encode(), encode()]
    assert len(made) == 3
    for each in before[1:]:
        np.testing.assert_array_equal(each, before[0])
    with torch.no_grad():
        for layer in linears(encoder.towers.documents):
            layer.weight.neg_()
    np.testing.assert_array_equal(encode(), before[0])
    [changed] = {encoder.optimize_for_inference().encode(records, "document", precision).tobytes()}
    assert changed != before[0].tobytes() and len(made) == 4


def test_an_optimized_encoder_has_a_copy_per_tower_and_leaves_the_towers_in_training(encoder, records):
    encoder.towers.train()
    encoder.untie()
    with torch.no_grad():
        linears(encoder.towers.documents)[0].weight.neg_()
    plain = [encoder.encode(records, side, "bf16") for side in ("query", "document")]
    encoder.optimize_for_inference()
    kept = [encoder.encode(records, side, "bf16") for side in ("query", "document")]
    np.testing.assert_array_equal(kept, plain)
    assert len(encoder._copies) == 2 and all(part.training for part in encoder.towers.modules())


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 64, 32), (200, 384, 1536), (70, 37, 5), (3, 7, 48, 100)])
def test_a_packed_layer_computes_as_nn_linear(dtype, shape, bias):
    *rows, inputs, outputs = shape
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
    own_bias = torch.randn(outputs, generator=generator) if bias else None
    given = torch.randn(*rows, inputs, generator=generator)
    layer, rounding = PackedLinear(weight, own_bias, dtype), TOLERANCE[dtype][0]
    own = [each if each is None else each.to(dtype) for each in (given, weight, own_bias)]
    assert torch.equal(layer.weight, own[1])
    with torch.inference_mode():
        expected = functional.linear(*own)
        torch.testing.assert_close(layer(own[0]), expected, rtol=rounding, atol=rounding)
        assert torch.equal(layer(own[0][..., None].expand(*own[0].shape, 2)[..., 0]), layer(own[0]))
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(layer(given).to(dtype), expected, rtol=0.02, atol=0.02)


@needs_packing
@pytest.mark.parametrize("operators", OPERATORS.values(), ids=OPERATORS)
def test_without_the_operator_layers_stay_as_they_are(encoder, records, monkeypatch, caplog, operators):
    packed = encoder.encode(records, "document", "bf16")
    reorder = torch.ops.mkldnn._reorder_linear_weight
    own = SimpleNamespace(**({"_reorder_linear_weight": reorder} if operators else {}), **operators)
    monkeypatch.setattr(torch.ops, "mkldnn", own)
    module._operators_agree.cache_clear()
    try:
        with caplog.at_level("INFO"):
            assert not packs_linears(torch.bfloat16)
        plain = encoder.encode(records, "document", "bf16")
    finally:
        monkeypatch.undo()
        module._operators_agree.cache_clear()
    assert "linear layers in bf16" in caplog.text
    tower = encoder.towers.queries
    assert len(linears(inference_copy(tower, torch.float16))) == len(linears(tower))
    np.testing.assert_allclose(packed, plain, atol=0.03)


class CannotBeCopied:
    def check(self, *_) -> None:
        assert type(self) is CannotBeCopied

    def __deepcopy__(self, memo):
        raise AssertionError("a hook's object was copied")


def test_hooks_and_computed_weights_hold_in_the_copy(encoder):
    """A hook that changes outputs, a weight that is computed before each pass, a subclass that computes
    something else, and outputs that are kept. A hook's object is not copied."""
    tower = encoder.towers.queries
    hooked, normed, other = linears(tower)[:3]
    calls = CannotBeCopied()
    hooked.register_forward_hook(lambda layer, inputs, outputs: -outputs)
    hooked.register_forward_pre_hook(calls.check)
    other.__class__ = type("Zero", (nn.Linear,), {"forward": lambda self, given: given * 0})
    nn.utils.weight_norm(normed)
    with torch.no_grad():
        normed.weight_g.mul_(-1)
    tower.last_output = tower("document", IDS, torch.ones_like(IDS))
    assert tower.last_output.grad_fn is not None
    copied = inference_copy(tower, torch.bfloat16)
    assert "Zero" in {type(layer).__name__ for layer in copied.modules()}
    assert functional.cosine_similarity(vectors(copied), vectors(tower)).min() > 0.999


def test_in_fp32_only_many_tokens_on_amds_processors_are_encoded_by_a_copy(encoder, monkeypatch, dtype):
    tower, is_half = encoder.towers.queries, dtype != torch.float32

    def is_copied(tokens: int, device: str = "cpu") -> bool:
        return faster_copy(tower, dtype, torch.device(device), tokens) is not None

    assert [is_copied(FEWEST_TOKENS - 1), is_copied(FEWEST_TOKENS)] == [is_half, True]
    assert is_copied(FEWEST_TOKENS, "meta") is is_half
    monkeypatch.setenv("PYSERINI_ANCE_PROCESSOR", "plain")
    assert is_copied(FEWEST_TOKENS) is is_half


@pytest.mark.parametrize("dtype", [torch.float32], indirect=True)
def test_a_tower_that_cannot_be_copied_encodes_in_fp32_itself(encoder, dtype, caplog):
    tower = encoder.towers.queries
    tower.lock = threading.Lock()
    assert faster_copy(tower, dtype, torch.device("cpu")) is None
    expected = encoder.encode(["one query"])
    encoder.optimize_for_inference()
    for _ in range(2):
        np.testing.assert_array_equal(encoder.encode(["one query"]), expected)
    assert caplog.text.count("the model cannot be copied") == 2  # here, and in the first call
