import numpy as np
import pytest
import torch

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import initial_encoder

SEED = 1


@pytest.fixture(params=["transformer", "roberta_ance"])
def encoder(request, family, tiny_bert, tiny_roberta) -> Encoder:
    if request.param == "transformer":
        return initial_encoder(family("transformer", tiny_bert, pooling="mean", normalize=True), SEED)
    return initial_encoder(family("roberta_ance", tiny_roberta, head="new", dimension=16), SEED)


def test_vectors_are_float32_in_the_order_of_the_records(encoder, records):
    vectors = encoder.encode(records, "document")
    assert vectors.shape == (len(records), encoder.dimension) and vectors.dtype == np.float32
    order = np.random.default_rng(0).permutation(len(records))
    np.testing.assert_allclose(
        encoder.encode([records[i] for i in order], "document"), vectors[order], atol=1e-5
    )


def test_the_batch_does_not_change_a_vector(encoder, records):
    alone = np.concatenate([encoder.encode([record], "document") for record in records])
    for budget in (1, 100, 100_000):
        np.testing.assert_allclose(
            encoder.encode(records, "document", tokens_per_batch=budget), alone, atol=1e-5
        )


def test_encode_rows_yields_each_row_once(encoder, records):
    tokens = TokenStore.of_lists(encoder.tokenizer.ids("document", records), encoder.tokenizer.specials)
    rows = np.array([7, 3, 9, 0, 11])
    done = list(encoder.encode_rows(tokens, rows, "document", "fp32", 60))
    assert len(done) > 1 and sorted(np.concatenate([batch for batch, _ in done])) == sorted(rows)
    whole = encoder.encode(records, "document")
    for batch, vectors in done:
        np.testing.assert_allclose(vectors, whole[batch], atol=1e-5)


def test_bf16_is_near_fp32(encoder, records):
    full, half = encoder.encode(records, "document"), encoder.encode(records, "document", "bf16")
    assert half.dtype == np.float32
    cosines = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
    assert 0.99 < cosines.min() and np.abs(full - half).max() > 0


def test_each_side_has_its_length_and_template(family, tiny_bert):
    encoder = initial_encoder(family("transformer", tiny_bert), SEED)
    assert (encoder.length_tokens("query"), encoder.length_tokens("document")) == (24, 48)
    text = [{"title": "x", "text": "b " * 30}]
    short = [{"title": "x", "text": "b " * 22}]
    np.testing.assert_allclose(encoder.encode(text, "query"), encoder.encode(short, "query"), atol=1e-5)
    assert np.abs(encoder.encode(text, "document") - encoder.encode(short, "document")).max() > 1e-3


def test_dropout_is_off_while_encoding_and_training_goes_on_after(family, tiny_bert, records):
    encoder = initial_encoder(family("transformer", tiny_bert, dropout=0.5), SEED)
    encoder.towers.train()
    np.testing.assert_array_equal(encoder.encode(records, "query"), encoder.encode(records, "query"))
    assert encoder.towers.training and encoder.towers.queries.backbone.training


def test_dropout_replaces_the_models_own(family, tiny_bert):
    for wanted, expected in ((0.3, {0.3}), (0.0, {0.0}), (None, {0.1})):
        towers = initial_encoder(family("transformer", tiny_bert, dropout=wanted), SEED).towers
        assert {module.p for module in towers.modules() if isinstance(module, torch.nn.Dropout)} == expected


@pytest.mark.parametrize("side", ["query", "document"])
@pytest.mark.parametrize(("kind", "longest"), [("bert", 128), ("roberta", 512)])
def test_a_length_beyond_the_position_embeddings_is_refused(family, request, kind, longest, side):
    model = request.getfixturevalue(f"tiny_{kind}")
    encoder = initial_encoder(
        family("transformer", model, tokenization={side: {"length_tokens": longest}, **_other(side)}), SEED
    )
    assert encoder.encode([{"text": "a " * 600}], side).shape == (1, 32)
    with pytest.raises(
        ValueError,
        match=f"encoder.tokenization.{side}.length_tokens is {longest + 1}, but .* reads at most {longest}",
    ):
        initial_encoder(
            family("transformer", model, tokenization={side: {"length_tokens": longest + 1}, **_other(side)}),
            SEED,
        )


def _other(side: str) -> dict:
    return {"document" if side == "query" else "query": {"length_tokens": 16}}


def test_a_length_without_room_for_text_is_refused(family, tiny_bert):
    settings = {"query": {"length_tokens": 2}, "document": {"length_tokens": 8}}
    with pytest.raises(ValueError, match=r"query.length_tokens is 2, and 2 of them are special tokens"):
        initial_encoder(family("transformer", tiny_bert, tokenization=settings), SEED)
