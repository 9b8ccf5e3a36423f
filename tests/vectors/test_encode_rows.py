"""Encoding of rows into a store or into memory, alone or by several processes."""

import copy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.device_counts import DeviceCounts
from helpers.recorded_encoder import RECORDS, SETTINGS, Recording, tiny_encoder, tokens_of

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import encoding
from pyserini_ance.vectors.encoding import encode_shards, encode_some
from pyserini_ance.vectors.vector_store import VectorStore


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return tiny_encoder(tiny_bert)


@pytest.fixture
def on_gpu(tiny_bert):
    """On torch's meta device, whose vectors have no values."""
    return tiny_encoder(tiny_bert, "meta")


@pytest.fixture(scope="module")
def expected(encoder) -> np.ndarray:
    return encoder.encode(RECORDS, "document")


@pytest.fixture(scope="module")
def tokens(encoder) -> TokenStore:
    return tokens_of(encoder)


def encoded(folder, encoder, tokens, **settings):
    return encode_shards(folder, {}, encoder, tokens, *SETTINGS, "documents", World(), **settings)


def test_every_text_is_encoded_into_its_row(tmp_path, encoder, tokens, expected):
    vectors = encoded(tmp_path, encoder, tokens, hold=True)
    np.testing.assert_allclose(vectors[:], expected, atol=1e-5)
    assert vectors.held is None


@pytest.mark.parametrize("is_new", [True, False])
def test_a_gpu_writes_window_by_window_waits_for_nothing_and_keeps_what_it_has_encoded(
    tmp_path, on_gpu, tokens, monkeypatch, is_new, processor
):
    """Unless some of it was written before, and must be read."""
    monkeypatch.setattr(encoding, "ROWS_PER_WINDOW", 5)
    if not is_new:
        store = VectorStore(tmp_path / "0-of-1", 12, on_gpu.dimension, {"first": 0})
        store.write(5, np.zeros((5, on_gpu.dimension), np.float32))
    written = []
    monkeypatch.setattr(VectorStore, "write", lambda _, first, vectors: written.append((first, len(vectors))))
    monkeypatch.setattr(encoding, "read_vectors", lambda *_: np.empty((12, on_gpu.dimension)))
    with DeviceCounts() as counts:
        held = encoded(tmp_path, on_gpu, tokens, hold=True).held
    assert counts.waits.total() == 0, counts.places
    assert written == [(0, 5), (5, 5), (10, 2)] if is_new else [(0, 5), (10, 2)]
    assert (held.shape == (12, on_gpu.dimension) and held.is_meta) if is_new else held is None


def test_vectors_that_stay_are_those_that_are_written(tmp_path, encoder, tokens, monkeypatch):
    """On a CPU in place of a GPU with room and of one without it."""
    on_gpu = copy.copy(encoder)
    on_gpu.device, on_gpu.encode_on_device = torch.device("cuda:1"), encoder.encode_on_device
    of_cpu = SimpleNamespace(empty=lambda shape, device: torch.zeros(shape), Tensor=torch.Tensor)
    monkeypatch.setattr(encoding, "torch", of_cpu)
    for free, has_room in ((4 * 12 * 32, False), (2 * 4 * 12 * 32, True)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 10**9))
        vectors = encoded(tmp_path / str(free), on_gpu, tokens, hold=True)
        assert (vectors.held is not None) == has_room
    np.testing.assert_array_equal(vectors.held.numpy(), vectors[:])


LENGTHS = np.random.default_rng(0).integers(3, 60, 200)  # tokens, in windows of 64 texts
MANY = [{"title": "", "text": "word " * length} for length in LENGTHS.tolist()]


def windowed(
    encoder, tokens, folder, precision, stop_after=None
) -> tuple[list[list[int]], np.ndarray | None]:
    """The batches of an encoding of MANY into `folder`, and all vectors unless it was stopped."""
    recording = Recording(encoder, stop_after)
    settings = "document", precision, 256, "documents", World()
    try:
        return recording.batches, np.array(encode_shards(folder, {}, recording, tokens, *settings)[:])
    except KeyboardInterrupt:
        return recording.batches, None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_continued_encoding_has_the_vectors_of_one_that_was_not_stopped(
    encoder, tmp_path, monkeypatch, precision, processor
):
    """Bit for bit, because its batches do not depend on what was written before the stop."""
    monkeypatch.setattr(encoding, "ROWS_PER_WINDOW", 64)
    tokens = tokens_of(encoder, MANY)
    batches, vectors = windowed(encoder, tokens, tmp_path / "whole", precision)
    for stop_after in (1, len(batches) // 2, len(batches) - 1):
        folder = tmp_path / str(stop_after)
        before, nothing = windowed(encoder, tokens, folder, precision, stop_after)
        after, continued = windowed(encoder, tokens, folder, precision)
        assert nothing is None and len(before) == stop_after and after == batches[-len(after) :]
        assert len(before) + len(after) < len(batches) + len(batches) // 3  # whole windows are kept
        np.testing.assert_array_equal(continued, vectors)
        assert windowed(encoder, tokens, folder, precision)[0] == []


ORDERS = [[5, 0, 11, 3], list(range(11, -1, -1)), [7], []]


def some(world: World, model: Path) -> list[tuple[np.ndarray, int]]:
    """For each of ORDERS, the vectors, and the number of texts that this process encoded."""
    encoding.ROWS_PER_GATHER = 2
    encoder = tiny_encoder(model)
    tokens = tokens_of(encoder)
    results = []
    for rows in ORDERS:
        recording = Recording(encoder)
        vectors = encode_some(recording, tokens, np.array(rows, np.int64), *SETTINGS, "sample", world)
        results.append((vectors, len(recording.rows)))
    return results


@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_process_encodes_some_rows_and_gets_all_in_their_order(run_processes, tiny_bert, expected, size):
    ends = run_processes(size, some, tiny_bert)
    for i, rows in enumerate(ORDERS):
        counts = [end[i][1] for end in ends]
        assert sum(counts) == len(rows) and max(counts) - min(counts) <= 1
        for end in ends:
            np.testing.assert_array_equal(end[i][0], ends[0][i][0])
            np.testing.assert_allclose(end[i][0], expected[rows], atol=1e-5)
            assert end[i][0].shape == (len(rows), 32) and end[i][0].dtype == np.float32
