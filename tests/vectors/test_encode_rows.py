"""Encoding of rows into a store or into memory, alone or by several processes."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.failures import PeerError, PeerLoss
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.recipe.components import component_class
from pyserini_ance.vectors import encoding
from pyserini_ance.vectors.encoding import encode_into, encode_some
from pyserini_ance.vectors.vector_store import VectorStore

RECORDS = [{"title": "", "text": "word " * (i * 7 % 12) + str(i)} for i in range(12)]
SETTINGS = ("document", "fp32", 40)


def family(model: Path):
    return component_class("encoder", "transformer")(
        model=str(model), pooling="mean", tokenization={"document": {"length_tokens": 32}}
    )


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return initial_encoder(family(tiny_bert), seed=1)


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
    """An encoder that records the rows it encodes, and stops after some batches."""

    def __init__(self, encoder, stop_after: int | None = None):
        self.encoder, self.stop_after, self.batches = encoder, stop_after, []
        self.dimension, self.length_tokens = encoder.dimension, encoder.length_tokens

    def encode_rows(self, *arguments):
        for rows, vectors in self.encoder.encode_rows(*arguments):
            if len(self.batches) == self.stop_after:
                raise KeyboardInterrupt
            self.batches.append(rows.tolist())
            yield rows, vectors


def test_every_text_is_encoded_into_its_row(store, encoder, tokens, expected):
    encode_into(store, encoder, tokens, *SETTINGS, "documents", 0, World())
    np.testing.assert_allclose(store.read(), expected, atol=1e-5)


def test_encoding_continues_after_an_interruption(store, encoder, tokens, expected):
    first, second, third = Recording(encoder, stop_after=2), Recording(encoder), Recording(encoder)
    with pytest.raises(KeyboardInterrupt):
        encode_into(store, first, tokens, *SETTINGS, "documents", 0, World())
    store.close()
    again = VectorStore(store.folder, len(RECORDS), encoder.dimension, {"weights": "abc"})
    encode_into(again, second, tokens, *SETTINGS, "documents", 0, World())
    encode_into(again, third, tokens, *SETTINGS, "documents", 0, World())
    done = [list(chain(*recording.batches)) for recording in (first, second, third)]
    assert done[0] and done[1] and sorted(done[0] + done[1]) == list(range(12)) and done[2] == []
    np.testing.assert_allclose(again.read(), expected, atol=1e-5)


def test_encoding_ends_when_another_process_has_ended(store, encoder, tokens, monkeypatch):
    def ended(_):
        raise PeerError(PeerLoss(1, "process 1 has died"))

    monkeypatch.setattr(World, "check", ended)
    first, some = Recording(encoder), Recording(encoder)
    with pytest.raises(PeerError, match="process 1 has died"):
        encode_into(store, first, tokens, *SETTINGS, "documents", 0, World())
    with pytest.raises(PeerError, match="process 1 has died"):
        encode_some(some, tokens, np.arange(12), *SETTINGS, "sample", World())
    assert len(first.batches) == len(some.batches) == 1


@pytest.mark.parametrize("rows", [[5, 0, 11, 3], list(range(12)), [7], []])
def test_rows_come_in_the_requested_order(encoder, tokens, expected, rows):
    vectors = encode_some(encoder, tokens, np.array(rows, np.int64), *SETTINGS, "sample", World())
    assert vectors.shape == (len(rows), 32) and vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected[rows], atol=1e-5)


ORDERS = [[5, 0, 11, 3], list(range(11, -1, -1)), [7], []]


def some(world: World, model: Path) -> list[tuple[np.ndarray, int]]:
    """For each of ORDERS, the vectors, and the number of texts that this process encoded."""
    encoding.ROWS_PER_GATHER = 2
    encoder = initial_encoder(family(model), seed=1)
    tokens = TokenStore.of_lists(encoder.tokenizer.ids("document", RECORDS), encoder.tokenizer.specials)
    results = []
    for rows in ORDERS:
        recording = Recording(encoder)
        vectors = encode_some(recording, tokens, np.array(rows, np.int64), *SETTINGS, "sample", world)
        results.append((vectors, sum(map(len, recording.batches))))
    return results


@pytest.mark.parametrize("size", [2, 3])
def test_each_process_encodes_some_rows_and_gets_all(run_processes, tiny_bert, expected, size):
    ends = run_processes(size, some, tiny_bert)
    for i, rows in enumerate(ORDERS):
        counts = [end[i][1] for end in ends]
        assert sum(counts) == len(rows) and max(counts) - min(counts) <= 1
        for end in ends:
            np.testing.assert_array_equal(end[i][0], ends[0][i][0])
            np.testing.assert_allclose(end[i][0], expected[rows], atol=1e-5)
