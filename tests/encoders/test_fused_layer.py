import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel

from pyserini_ance.encoders import fused_layer, inference_copy
from pyserini_ance.encoders.fused_layer import FusedLayer, fuse_layers
from pyserini_ance.encoders.inference_copy import MOST_FUSED_TOKENS, kept_copy
from pyserini_ance.encoders.load_save import initial_encoder

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
IDS = torch.randint(5, 60, (3, 12), generator=torch.Generator().manual_seed(0))
MASK = torch.ones_like(IDS)
MASK[1, 4:] = 0


def model(kind: str = "bert", attention: str = "sdpa", **settings) -> nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=64, **{**SHAPE, **settings})
    return AutoModel.from_config(config, attn_implementation=attention).eval()


@pytest.fixture
def not_amd(monkeypatch):
    """A processor on which fp32 is not packed."""
    monkeypatch.setattr(inference_copy, "cpu_is_amd", lambda: False)
    inference_copy._operators_agree.cache_clear()
    yield
    inference_copy._operators_agree.cache_clear()


@pytest.fixture
def encoder(not_amd, family, tiny_bert):
    return initial_encoder(family("transformer", tiny_bert), 1)


@torch.inference_mode()
def states(model: nn.Module, mask: torch.Tensor | None) -> torch.Tensor:
    found = model(input_ids=IDS, attention_mask=mask).last_hidden_state
    return found if mask is None else found[mask.bool()]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "electra", "camembert"])
def test_fused_layers_compute_as_those_of_transformers(kind, attention):
    tower = model(kind, attention)
    expected = [states(tower, mask) for mask in (None, MASK)]
    assert fuse_layers(tower) == 2
    for mask, wanted in zip((None, MASK), expected, strict=True):
        torch.testing.assert_close(states(tower, mask), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_act": "relu"},
        {"hidden_act": "gelu_new"},
        {"is_decoder": True},
        {"kind": "deberta-v2", "relative_attention": True, "pos_att_type": ["p2c"], "attention": "eager"},
        {"kind": "mpnet", "attention": "eager"},
    ],
    ids=["relu", "gelu_new", "decoder", "deberta", "mpnet"],
)
def test_other_layers_stay(settings):
    other = model(**settings)
    before = [type(module) for module in other.modules()]
    assert fuse_layers(other) == 0
    assert [type(module) for module in other.modules()] == before


class Added(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + 1


def test_a_layer_with_a_hook_or_a_part_of_another_kind_stays():
    tower = model(num_hidden_layers=5)
    layers = tower.encoder.layer
    layers[0].attention.self.query.register_forward_hook(lambda *_: None)
    layers[1].output.dense.__class__ = Added
    layers[2].output.LayerNorm.eps *= 2
    layers[3].intermediate.forward = lambda states, own=layers[3].intermediate.forward: 2 * own(states)
    expected = states(tower, MASK)
    assert fuse_layers(tower) == 1
    assert [isinstance(layer, FusedLayer) for layer in tower.encoder.layer] == [False] * 4 + [True]
    torch.testing.assert_close(states(tower, MASK), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("broken", ["operator", "results"])
def test_without_the_operator_or_with_other_results_layers_stay(monkeypatch, broken):
    def wrong(states: torch.Tensor, *_) -> torch.Tensor:
        return states

    if broken == "operator":
        monkeypatch.delattr(torch, "_transformer_encoder_layer_fwd")
    else:
        monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", wrong)
    assert fuse_layers(model()) == 0


def test_queries_of_an_optimized_encoder_take_fused_layers_and_many_texts_do_not(
    encoder, monkeypatch, caplog
):
    passes, forward = [], FusedLayer.forward
    monkeypatch.setattr(FusedLayer, "forward", lambda *own, **more: passes.append(1) or forward(*own, **more))
    queries = ["what is a dense retriever", "negatives", "one more query of seven words here"]
    many = queries * MOST_FUSED_TOKENS  # of three tokens or more each
    plain = [encoder.encode(texts) for texts in (queries, many)]
    caplog.set_level("INFO")
    encoder.optimize_for_inference()
    passes.clear()  # layers were compared
    large = encoder.encode(many)
    assert not passes and not encoder._copies
    np.testing.assert_array_equal(large, plain[1])
    np.testing.assert_allclose(encoder.encode(queries), plain[0], rtol=1e-5, atol=1e-6)
    layers = sum(isinstance(layer, FusedLayer) for layer in next(iter(encoder._copies.values())).modules())
    assert f"{layers} layers of the model are fused" in caplog.text
    assert layers and len(passes) > 2 * layers  # beside its comparisons, the call itself


def test_the_tower_stays_and_the_copy_has_weights_of_its_own(encoder):
    tower = encoder.towers.queries.train()
    before = [type(module) for module in tower.modules()]
    copied = kept_copy(tower, torch.float32, torch.device("cpu"))
    assert [type(module) for module in tower.modules()] == before and tower.training and not copied.training
    with torch.inference_mode():
        expected = copied("query", IDS, MASK)
        for layer in tower.modules():
            if type(layer) is nn.Linear:
                layer.weight.neg_()
        assert torch.equal(copied("query", IDS, MASK), expected)


def test_a_tower_without_such_layers_and_one_on_a_gpu_have_no_copy(encoder, monkeypatch):
    tower = encoder.towers.queries
    assert kept_copy(tower, torch.float32, torch.device("meta")) is None
    monkeypatch.setattr(fused_layer, "_agrees", lambda *_: False)
    assert kept_copy(tower, torch.float32, torch.device("cpu")) is None
