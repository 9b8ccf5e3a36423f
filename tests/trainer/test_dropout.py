import math

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import BertConfig, BertModel

from pyserini_ance.trainer.dropout import LEVELS, CpuDropout, recomputes, reproducible_dropout

SEED = 7
attention = functional.scaled_dot_product_attention
PADDING = torch.tensor([[True, True, True, False], [True, False, False, False]])[:, None, None]
MASKS = {"none": None, "booleans": PADDING, "of each query": torch.ones(4, 4, dtype=torch.bool).tril()}
MASKS["numbers"] = torch.zeros(PADDING.shape).masked_fill(~PADDING, torch.finfo(torch.float32).min)
PRECISIONS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.04}


def kept(shape: tuple[int, ...], p: float) -> torch.Tensor:
    """The first mask after `torch.manual_seed(SEED)`, number by number."""
    torch.manual_seed(SEED)
    seed = torch.empty((), dtype=torch.int64).random_().item()
    drawn = [int(word) for word in np.random.SFC64(seed).random_raw(100)]
    numbers = [word >> shift & 0xFFFF for word in drawn for shift in (0, 16, 32, 48)]
    kept = [number >= round(p * LEVELS) for number in numbers[: math.prod(shape)]]
    return torch.tensor(kept, dtype=torch.bool).view(shape)


@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (8,), (2, 3, 4), (0, 4)], ids=str)
def test_dropout_keeps_what_the_mask_says_and_scales_it(precision, shape):
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(precision).requires_grad_()
    torch.manual_seed(SEED)
    with CpuDropout():
        outputs = functional.dropout(inputs, 0.3)
    factor = LEVELS / (LEVELS - round(0.3 * LEVELS))
    expected = torch.where(kept(shape, 0.3), inputs.detach().double() * factor, 0)
    torch.testing.assert_close(outputs.double(), expected, rtol=2**-8, atol=0)
    given = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(precision)
    outputs.backward(given)
    expected = torch.where(kept(shape, 0.3), given.double() * factor, 0)
    torch.testing.assert_close(inputs.grad.double(), expected, rtol=2**-8, atol=0)


@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", [None, 0.2])
def test_attention_is_that_of_its_formula(precision, mask, scale):
    numbers = torch.randn((4, 2, 3, 4, 5), generator=torch.Generator().manual_seed(3)).to(precision)
    given, own = numbers[3], [each.clone().requires_grad_() for each in numbers[:3]]
    torch.manual_seed(SEED)
    with CpuDropout():
        found = attention(*own, attn_mask=MASKS[mask], dropout_p=0.3, scale=scale)
    found.backward(given)

    query, key, value = (each.double().requires_grad_() for each in numbers[:3])
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * (5**-0.5 if scale is None else scale)
    if MASKS[mask] is not None:
        allowed = MASKS[mask] if MASKS[mask].dtype == torch.bool else MASKS[mask] == 0
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = scores.softmax(-1) * kept((2, 3, 4, 4), 0.3) * LEVELS / (LEVELS - round(0.3 * LEVELS))
    expected = torch.einsum("bhqk,bhkd->bhqd", weights, value)
    expected.backward(given.double())
    close = {"rtol": PRECISIONS[precision], "atol": PRECISIONS[precision]}
    torch.testing.assert_close(found.double(), expected, **close)
    for one, reference in zip(own, (query, key, value), strict=True):
        torch.testing.assert_close(one.grad.double(), reference.grad, **close)


@pytest.mark.parametrize("mask", ["booleans", "numbers"])
def test_attention_that_may_see_nothing_is_finite(mask):
    numbers, own = torch.full((2, 1, 1, 4), -math.inf), torch.randn(2, 3, 4, 5, requires_grad=True)
    with CpuDropout():
        nothing = numbers if mask == "numbers" else numbers == 0
        found = attention(own, own, own, attn_mask=nothing, dropout_p=0.25)
    found.sum().backward()
    assert bool(found.isfinite().all())
    assert bool(own.grad.isfinite().all())


LEFT = {
    "no training": lambda x: functional.dropout(x, 0.5, training=False),
    "nothing dropped": lambda x: functional.dropout(x, 0.0),
    "all dropped": lambda x: functional.dropout(x, 1.0),
    "in place": lambda x: functional.dropout(x.clone(), 0.5, True, True),
    "alpha": lambda x: functional.alpha_dropout(x, 0.5, True),
    "attention without dropout": lambda x: attention(x, x, x),
    "causal attention": lambda x: attention(x, x, x, dropout_p=0.5, is_causal=True),
    "groups of heads": lambda x: attention(x, x[:, :1], x[:, :1], dropout_p=0.5, enable_gqa=True),
    "three dimensions": lambda x: attention(x[0], x[0], x[0], dropout_p=0.5),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_to_torch_is_torchs(case):
    inputs = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(4))
    torch.manual_seed(SEED)
    expected = LEFT[case](inputs)
    torch.manual_seed(SEED)
    with CpuDropout():
        assert torch.equal(LEFT[case](inputs), expected)


@pytest.fixture
def model() -> BertModel:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertModel(BertConfig(vocab_size=50, initializer_range=0.5, **shape)).double().train()


def hidden_and_gradients(model: BertModel, is_recomputed: bool = False) -> list[torch.Tensor]:
    ids, mask = torch.arange(1, 25).view(3, 8), torch.arange(8) < torch.tensor([[8], [5], [2]])
    model.zero_grad()
    with reproducible_dropout(1, "query", is_recomputed=is_recomputed):
        hidden = model(ids, mask.long()).last_hidden_state * mask[..., None]
    hidden.square().sum().backward()
    return [hidden.detach(), *(each.grad.clone() for each in model.encoder.parameters())]


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_a_model_that_computes_layers_again_has_the_same_gradients(model, is_reentrant):
    assert not recomputes(model)
    expected = hidden_and_gradients(model, is_recomputed=True)
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": is_reentrant})
    assert recomputes(model)
    for one, other in zip(hidden_and_gradients(model, recomputes(model)), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_attention_in_bf16_has_scores_and_softmax_in_fp32():
    query, key, value = torch.randn((3, 8, 4, 64, 32), generator=torch.Generator().manual_seed(5)) * 1.5
    given = [each.bfloat16() for each in (query, key, value)]
    exact = attention(*(each.double() for each in given))
    with CpuDropout(), torch.autocast("cpu", torch.bfloat16):
        found = attention(*given, dropout_p=1 / LEVELS)  # drops next to nothing, and is ours
    errors = [float((each.double() - exact).square().mean().sqrt()) for each in (found, attention(*given))]
    assert errors[0] < 1.5 * errors[1]  # with scores and softmax in bf16: 4 times


def test_equal_keys_drop_the_same_and_the_generator_is_put_back():
    ones, before = torch.ones(100), torch.get_rng_state()

    def drawn(*key, rank=0):
        with reproducible_dropout(*key, rank=rank):
            return torch.cat([torch.rand(5), functional.dropout(ones, 0.5)])

    first = drawn(1, "query")
    assert torch.equal(drawn(1, "query"), first)
    for other in (drawn(1, "document"), drawn(2, "query"), drawn(1, "query", rank=1)):
        assert not torch.equal(other[:5], first[:5])
        assert not torch.equal(other[5:], first[5:])
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(KeyError), reproducible_dropout(1, "query"):
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)


def test_what_another_thread_draws_changes_no_mask_of_a_cpu():
    def drawn(disturb) -> torch.Tensor:
        with reproducible_dropout("a step"):
            disturb()
            return functional.dropout(torch.ones(100))

    expected = drawn(lambda: None)
    assert drawn(lambda: torch.rand(3)).equal(expected) and drawn(torch.seed).equal(expected)
