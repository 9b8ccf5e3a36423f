"""Encoding of rows into a store or into memory, alone or by several processes."""

import copy
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.device_counts import DeviceCounts

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.recipe.components import component_class
from pyserini_ance.vectors import encoding
from pyserini_ance.vectors.encoding import _encode_and_hold, encode_into, encode_some
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


@pytest.fixture
def on_gpu(tiny_bert):
    """On torch's meta device, whose vectors have no values."""
    return initial_encoder(family(tiny_bert), seed=1, device="meta")


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


def test_a_gpu_encodes_in_windows_each_of_which_is_one_write(store, on_gpu, tokens, monkeypatch, processor):
    monkeypatch.setattr(encoding, "ROWS_PER_WINDOW", 5)
    written = []
    monkeypatch.setattr(VectorStore, "write", lambda _, rows, vectors: written.append(sorted(rows.tolist())))
    with DeviceCounts() as counts:
        encode_into(store, on_gpu, tokens, *SETTINGS, "documents", 0, World())
    assert written == [list(range(5)), list(range(5, 10)), [10, 11]]
    assert counts.waits.total() == 0, counts.places


@pytest.mark.parametrize("is_new", [True, False])
def test_what_a_gpu_has_just_encoded_stays_there(store, on_gpu, tokens, is_new, processor):
    """Unless some of it was written before, and must be read."""
    if not is_new:
        store.write(np.array([3]), np.zeros((1, on_gpu.dimension), np.float32))
    with DeviceCounts() as counts:
        held = encode_into(store, on_gpu, tokens, *SETTINGS, "documents", 0, World(), hold=True)
    assert counts.waits.total() == 0, counts.places
    assert held.shape == (12, on_gpu.dimension) and held.is_meta if is_new else held is None


def test_vectors_that_stay_are_those_that_are_written(encoder, tokens):
    held, rows = torch.zeros(7, encoder.dimension), np.arange(5, 12)
    arguments = tokens, rows, *SETTINGS
    written = list(_encode_and_hold(encoder, held, 5, *arguments))
    assert len(written) > 1
    for (some, vectors), (expected_rows, expected) in zip(
        written, encoder.encode_rows(*arguments), strict=True
    ):
        np.testing.assert_array_equal(some, expected_rows)
        np.testing.assert_array_equal(vectors, expected)
        np.testing.assert_array_equal(held.numpy()[some - 5], expected)


def test_vectors_on_the_cpu_or_without_room_do_not_stay(store, encoder, tokens, monkeypatch):
    assert encode_into(store, encoder, tokens, *SETTINGS, "documents", 0, World(), hold=True) is None
    on_gpu = copy.copy(encoder)
    on_gpu.device = torch.device("cuda:1")
    for free, has_room in ((4 * 12 * 32, False), (2 * 4 * 12 * 32, True)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 10**9))
        monkeypatch.setattr(torch, "empty", lambda *_, **where: where["device"])
        assert encoding._room(on_gpu, 12) == (on_gpu.device if has_room else None)


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
