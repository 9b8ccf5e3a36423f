import numpy as np
import pytest

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.recipe.parts import part_class
from pyserini_ance.vectors.encode import encode_into, encode_some
from pyserini_ance.vectors.store import VectorStore

RECORDS = [{"title": "", "text": "word " * (i * 7 % 12) + str(i)} for i in range(12)]
SETTINGS = ("document", "fp32", 40)


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    family = part_class("encoder", "transformer")(model=str(tiny_bert), pooling="mean", tokenization={"document": {"length_tokens": 32}})
    return start_encoder(family, seed=1)


@pytest.fixture(scope="module")
def expected(encoder) -> np.ndarray:
    return encoder.encode(RECORDS, "document")


@pytest.fixture(scope="module")
def tokens(encoder) -> TokenStore:
    return TokenStore.of_lists(encoder.tokenizer.ids("document", RECORDS), encoder.tokenizer.specials)


@pytest.fixture
def store(tmp_path, encoder) -> VectorStore:
    return VectorStore(tmp_path / "store", len(RECORDS), encoder.dimension, {"weights": "abc"})


class Recording:
    """An encoder that notes the rows it encodes, and stops after some batches."""

    def __init__(self, encoder, stop_after: int | None = None):
        self.encoder, self.stop_after, self.batches = encoder, stop_after, []

    def encode_rows(self, *arguments):
        for rows, vectors in self.encoder.encode_rows(*arguments):
            if len(self.batches) == self.stop_after:
                raise KeyboardInterrupt
            self.batches.append(rows.tolist())
            yield rows, vectors


def test_every_text_is_encoded_into_its_row(store, encoder, tokens, expected):
    encode_into(store, encoder, tokens, *SETTINGS, "documents")
    np.testing.assert_allclose(store.read(), expected, atol=1e-5)


def test_encoding_goes_on_where_it_was_interrupted(store, encoder, tokens, expected):
    first, second, third = Recording(encoder, stop_after=2), Recording(encoder), Recording(encoder)
    with pytest.raises(KeyboardInterrupt):
        encode_into(store, first, tokens, *SETTINGS, "documents")
    store.close()
    again = VectorStore(store.folder, len(RECORDS), encoder.dimension, {"weights": "abc"})
    encode_into(again, second, tokens, *SETTINGS, "documents")
    encode_into(again, third, tokens, *SETTINGS, "documents")
    done = [sum(recording.batches, []) for recording in (first, second, third)]
    assert done[0] and done[1] and sorted(done[0] + done[1]) == list(range(12)) and done[2] == []
    np.testing.assert_allclose(again.read(), expected, atol=1e-5)


@pytest.mark.parametrize("rows", [[5, 0, 11, 3], list(range(12)), [7], []])
def test_some_rows_come_in_their_order(encoder, tokens, expected, rows):
    vectors = encode_some(encoder, tokens, np.array(rows, np.int64), *SETTINGS, "sample")
    assert vectors.shape == (len(rows), 32) and vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected[rows], atol=1e-5)
