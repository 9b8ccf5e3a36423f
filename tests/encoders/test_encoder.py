import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers.device_counts import META, DeviceCounts
from helpers.small_set import TINY_SHAPE
from transformers import AutoConfig, AutoModel

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.encoders.encoder import Encoder, padded_batch, to_device, to_host
from pyserini_ance.encoders.hardware import DTYPES
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.towers import MASKED_ALONE, attention_mask


@pytest.fixture(params=["plain", "ance"])
def encoder(request, start, tiny_bert, tiny_roberta) -> Encoder:
    if request.param == "plain":
        return start(tiny_bert, pooling="mean", normalize=True)
    return start(tiny_roberta, projection=16, layer_norm=True)


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (["a", None], {}, r"texts\[1\] is None, with a value of type NoneType; expected a string, or a dict"),
        (["a", "a \ud800"], {}, r"texts\[1\] is 'a \\ud800', with half a surrogate pair; remove"),
        (["a", {"url": "a"}], {}, r"reads a query as '{text}', but texts\[1\] has only url; pass dicts"),
        # Its characters, or keys, would be the texts.
        ("a cat", {}, "texts is a single text, .*; expected a list"),
        (["a"], {"precision": "float16"}, "precision is 'float16'; expected 'fp32' or 'bf16' or 'fp16'"),
    ],
)
def test_what_cannot_be_encoded_is_named(encoder, texts, settings, message):
    with pytest.raises(ValueError, match=message):
        encoder.encode(texts, **settings)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_batch_waits_on_a_gpu(encoder, saved, records, precision):
    """Each is launched before the one before it is read."""
    on_gpu = load_encoder(saved(encoder), "meta")
    tokenizer = on_gpu.tokenizer
    tokens = TokenStore.of_lists(tokenizer.ids("document", records), tokenizer.specials["document"])
    with DeviceCounts() as counts:
        encoded = on_gpu.encode_on_device(tokens, np.arange(len(records)), "document", precision, 60)
        batches = list(to_host(encoded, tokens))
    assert len(batches) > 2 and counts.waits.total() == 0, counts.places
    assert counts.copies == {"to device": len(batches), "to host": len(batches)}
    assert sorted(np.concatenate([rows for rows, _ in batches])) == list(range(len(records)))
    assert all(vectors.shape == (len(rows), encoder.dimension) for rows, vectors in batches)


def test_a_batch_is_launched_before_the_one_before_it_is_given():
    done = []

    def batches():
        for number in range(3):
            done.append(f"launch {number}")
            yield np.array([number]), torch.ones(1, 2, device=META)

    with DeviceCounts():
        for rows, _ in to_host(batches(), TokenStore.of_lists([], Specials((), (), 0))):
            done.append(f"give {rows[0]}")
    assert done == ["launch 0", "launch 1", "give 0", "launch 2", "give 1", "give 2"]


def test_dropout_is_off_while_encoding_and_training_goes_on_after(start, tiny_bert, records):
    encoder = start(tiny_bert, dropout=0.5)
    encoder.towers.train()
    np.testing.assert_array_equal(encoder.encode(records, "query"), encoder.encode(records, "query"))
    assert encoder.towers.training and encoder.towers.queries.transformer.training
    tokens = TokenStore.of_lists(encoder.tokenizer.ids("query", records), encoder.tokenizer.specials["query"])
    batches = encoder.encode_on_device(tokens, np.arange(len(records)), "query", "fp32", 60)
    next(batches)
    assert not encoder.towers.training
    batches.close()
    assert encoder.towers.training


@pytest.mark.parametrize("optimized", [False, True])
def test_threads_may_encode_at_once(start, tiny_bert, optimized):
    """No call changes the mode of the towers, which would turn on the dropout of the others."""
    encoder = start(tiny_bert, dropout=0.5)
    modes = []
    if optimized:  # its copies are made in the first calls
        encoder.optimize_for_inference()
    else:
        for module in encoder.towers.modules():
            module.train = lambda mode=True: modes.append(mode)
    texts = [[f"{'the quick brown fox ' * (i % 5)}{i}"] for i in range(200)]
    expected = [encoder.encode(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        np.testing.assert_allclose(list(pool.map(encoder.encode, texts)), expected, atol=1e-6)
    assert not modes and not any(module.training for module in encoder.towers.modules())


def test_dropout_replaces_the_models_own(start, tiny_bert):
    for wanted, expected in ((0.3, {0.3}), (0.0, {0.0}), (None, {0.1})):
        towers = start(tiny_bert, dropout=wanted).towers
        assert {module.p for module in towers.modules() if isinstance(module, torch.nn.Dropout)} == expected


@pytest.mark.parametrize(("kind", "longest"), [("bert", 128), ("roberta", 512)])
def test_a_length_beyond_the_position_embeddings_is_refused(start, request, kind, longest):
    model, other = request.getfixturevalue(f"tiny_{kind}"), {"length_tokens": 16}

    def reading(length):
        return start(model, tokenization={"query": other, "document": {"length_tokens": length}})

    assert reading(longest).encode([{"text": "a " * 600}], "document").shape == (1, 32)
    where = "encoder.tokenization.document.length_tokens is"
    with pytest.raises(ValueError, match=f"{where} {longest + 1}, but .* reads at most {longest}"):
        reading(longest + 1)
    with pytest.raises(ValueError, match=f"{where} 2, and 2 of them are special tokens"):
        reading(2)


ARRAYS = [np.array([[True, False, True]]), np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::-1]]
ARRAYS += [np.empty((0, 4), np.int64), np.array([[0.5, np.nan]], np.float32), np.arange(3)]


def test_arrays_go_over_together_and_come_out_alike(monkeypatch):
    with monkeypatch.context() as patch:  # the bytes that go over, as they are on the CPU
        patch.setattr(torch.Tensor, "to", lambda packed, *_, **__: packed)
        unpacked = to_device(META, *ARRAYS)
    for tensor, on_cpu, array in zip(unpacked, to_device(torch.device("cpu"), *ARRAYS), ARRAYS, strict=True):
        assert tensor.dtype == on_cpu.dtype == torch.from_numpy(array[:0].copy()).dtype
        np.testing.assert_array_equal(tensor.numpy(), array)
        np.testing.assert_array_equal(on_cpu.numpy(), array)
    with DeviceCounts() as counts:
        moved = to_device(META, *ARRAYS)
    assert [t.shape for t in moved] == [a.shape for a in ARRAYS] and all(t.is_meta for t in moved)
    assert (counts.waits.total(), counts.copies) == (0, {"to device": 1})


def test_attention_on_a_cpu_is_what_is_fast_there(encoder, saved, processor):
    is_eager = encoder.config.layer_norm or processor == "zen5"
    assert load_encoder(saved(encoder)).attention == ("eager" if is_eager else "sdpa")


def test_vectors_are_the_same_on_every_processor_up_to_rounding(encoder, saved, records, processor):
    copy, expected = load_encoder(saved(encoder)), encoder.encode(records, "document")
    for precision, rounding in (("fp32", 2**-18), ("bf16", 2**-7)):
        vectors = copy.encode(records, "document", precision)
        off = np.linalg.norm(vectors - expected, axis=1) / np.linalg.norm(expected, axis=1)
        assert np.median(off) < 4 * rounding  # LayerNorm enlarges the errors of a few short states


def test_attention_is_fused_on_a_gpu(encoder, saved):
    on_gpu = load_encoder(saved(encoder), "meta")
    assert on_gpu.attention == "sdpa"
    with DeviceCounts() as counts:
        on_gpu.towers("document", torch.ones(2, 3, dtype=torch.int64, device=META), None)
    assert counts.launches["_safe_softmax"] == TINY_SHAPE["num_hidden_layers"]  # torch's own attention
    assert counts.launches["_softmax"] == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_no_mask_where_all_texts_are_equally_long(encoder, device):
    tokens = TokenStore.of_lists([[7, 8, 9], [9, 8, 7], [7]], encoder.tokenizer.specials["document"])
    ids, mask = padded_batch(tokens, np.array([0, 1]), 24, torch.device(device))
    assert mask is None and ids.device.type == device and ids.shape[0] == 2
    with DeviceCounts() as counts:
        _, mask = padded_batch(tokens, np.array([0, 2]), 24, torch.device(device))
    assert mask.shape == (2, ids.shape[1]) and counts.waits.total() == 0


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_vectors_and_gradients_without_a_mask_are_those_with_one_of_ones(encoder, attention):
    for module in encoder.towers.modules():
        if hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation(attention)
    ids = torch.randint(5, 20, (4, 7), generator=torch.Generator().manual_seed(0))

    def results(mask) -> list[torch.Tensor]:
        encoder.towers.zero_grad()
        vectors = encoder.towers("document", ids, mask)
        vectors.pow(3).sum().backward()
        return [vectors, *(p.grad for p in encoder.towers.parameters() if p.grad is not None)]

    for one, other in zip(results(None), results(torch.ones_like(ids)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("model_type", sorted(MASKED_ALONE))
def test_a_mask_for_fused_attention_hides_the_padding_without_a_wait(model_type):
    names = {"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"}
    shape = {**TINY_SHAPE, "hidden_dim": 64, **{new: TINY_SHAPE[old] for new, old in names.items()}}
    config = AutoConfig.for_model(model_type, vocab_size=50, pad_token_id=1, **shape)
    torch.manual_seed(0)
    model = AutoModel.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    assert attention_mask(model, mask).shape == (2, 1, 1, 4)
    ours = model(input_ids=ids, attention_mask=attention_mask(model, mask)).last_hidden_state
    theirs = model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()])
    assert (model(input_ids=ids).last_hidden_state - theirs)[1, :2].abs().max() > 1e-3
    model, ids, mask = model.to(META), ids.to(META), mask.to(META)
    for given, waits in ((mask, 1), (attention_mask(model, mask), 0), (None, 0)):
        with DeviceCounts() as counts:
            model(input_ids=ids, attention_mask=given)
        assert counts.waits.total() == waits


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("side", "precision"), [("query", "bf16"), ("document", "bf16"), ("query", "fp16")])
def test_half_precision_is_a_copy_in_it(start, tiny_bert, records, monkeypatch, tied, side, precision):
    monkeypatch.setattr("pyserini_ance.encoders.inference_copy.packs_linears", lambda dtype: False)
    encoder = start(tiny_bert, tied=tied, projection=8, pooling="mean")
    before = {name: weight.clone() for name, weight in encoder.towers.named_parameters()}
    copied = copy.deepcopy(encoder.towers.tower(side)).eval()
    copied.transformer.to(DTYPES[precision])
    tokens = TokenStore.of_lists(encoder.tokenizer.ids(side, records), encoder.tokenizer.specials[side])
    for rows, vectors in encoder.encode_on_device(tokens, np.arange(len(records)), side, precision, 50):
        ids, mask = padded_batch(tokens, rows, encoder.length_tokens(side), encoder.device)
        with torch.inference_mode():
            np.testing.assert_array_equal(vectors, copied(side, ids, mask).numpy())
    half, whole = (torch.from_numpy(encoder.encode(records, side, each)) for each in (precision, "fp32"))
    cosines = torch.nn.functional.cosine_similarity(half, whole)
    assert cosines.min() > 0.999 and not torch.equal(torch.ones_like(cosines), cosines)
    assert all(torch.equal(before[name], weight) for name, weight in encoder.towers.named_parameters())


def test_other_models_get_the_mask_as_it_is():
    """MPNet adds to it; ModernBERT looks through windows, which a ready mask would open."""
    mask = torch.tensor([[1, 0]])
    for model_type in ("mpnet", "modernbert"):
        config = AutoConfig.for_model(model_type, vocab_size=50, pad_token_id=1, **TINY_SHAPE)
        assert attention_mask(AutoModel.from_config(config), mask) is mask
