"""Encoding of rows into a store or into memory, alone or by several processes; shards read like one array."""

import copy
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.device_counts import DeviceCounts

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.vectors import encoding
from pyserini_ance.vectors.encoding import (
    Shard,
    ShardedVectors,
    encode_shards,
    encode_some,
    shard_bounds,
    text_windows,
)
from pyserini_ance.vectors.vector_store import VectorStore

RECORDS = [{"title": "", "text": "word " * (i * 7 % 12) + str(i)} for i in range(12)]
SETTINGS = ("document", "fp32", 40)
LENGTHS = np.random.default_rng(0).integers(3, 60, 200)  # tokens, in windows of 64 texts
MANY = [{"title": "", "text": "word " * length} for length in LENGTHS.tolist()]
ORDERS = [[5, 0, 11, 3], list(range(11, -1, -1)), [7], []]
KEY = {"weights": "abc"}


def tiny_encoder(model: Path, device: str = "cpu") -> Encoder:
    settings = {"pooling": "mean", "tokenization": {"document": {"length_tokens": 64}}}
    return initial_encoder(EncoderConfig(model=str(model), **settings), 1, device)


def tokens_of(encoder: Encoder, records: list[dict[str, str]] = RECORDS) -> TokenStore:
    tokenizer = encoder.tokenizer
    return TokenStore.of_lists(tokenizer.ids("document", records), tokenizer.specials["document"])


class Recording:
    """An encoder that records the rows it encodes, and stops after some batches."""

    def __init__(self, encoder: Encoder, stop_after: int | None = None):
        self.encoder, self.stop_after, self.batches = encoder, stop_after, []
        self.dimension, self.length_tokens = encoder.dimension, encoder.length_tokens
        self.device = encoder.device

    @property
    def rows(self) -> list[int]:
        return [row for batch in self.batches for row in batch]

    def encode_on_device(self, *arguments):
        for rows, vectors in self.encoder.encode_on_device(*arguments):
            if len(self.batches) == self.stop_after:
                raise KeyboardInterrupt
            self.batches.append(rows.tolist())
            yield rows, vectors


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return tiny_encoder(tiny_bert)


@pytest.fixture(scope="module")
def expected(encoder) -> np.ndarray:
    return encoder.encode(RECORDS, "document")


@pytest.fixture(scope="module")
def tokens(encoder) -> TokenStore:
    return tokens_of(encoder)


def alone(folder, encoder, tokens, **settings):
    return encode_shards(folder, {}, encoder, tokens, *SETTINGS, "documents", World(), **settings)


def test_every_text_is_encoded_into_its_row(tmp_path, encoder, tokens, expected):
    vectors = alone(tmp_path, encoder, tokens, hold=True)
    np.testing.assert_allclose(vectors[:], expected, atol=1e-5)
    assert vectors.held is None


@pytest.mark.parametrize("is_new", [True, False])
def test_a_gpu_writes_in_windows_and_never_waits(tmp_path, tiny_bert, tokens, monkeypatch, is_new, processor):
    """Unless some of it was written before, and must be read."""
    on_gpu = tiny_encoder(tiny_bert, "meta")  # torch's device whose vectors have no values
    monkeypatch.setattr(encoding, "ROWS_PER_WINDOW", 5)
    if not is_new:
        store = VectorStore(tmp_path / "0-of-1", 12, on_gpu.dimension, {"first": 0})
        store.write(5, np.zeros((5, on_gpu.dimension), np.float32))
    written = []
    monkeypatch.setattr(VectorStore, "write", lambda _, first, vectors: written.append((first, len(vectors))))
    monkeypatch.setattr(encoding, "read_vectors", lambda *_: np.empty((12, on_gpu.dimension)))
    with DeviceCounts() as counts:
        held = alone(tmp_path, on_gpu, tokens, hold=True).held
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
        vectors = alone(tmp_path / str(free), on_gpu, tokens, hold=True)
        assert (vectors.held is not None) == has_room
    np.testing.assert_array_equal(vectors.held.numpy(), vectors[:])


def windowed(encoder, tokens, folder, precision, stop_after=None) -> tuple[list, np.ndarray | None]:
    """The batches of an encoding of MANY into `folder`, and all vectors unless it was stopped."""
    recording = Recording(encoder, stop_after)
    settings = "document", precision, 256, "documents", World()
    try:
        return recording.batches, np.array(encode_shards(folder, {}, recording, tokens, *settings)[:])
    except KeyboardInterrupt:
        return recording.batches, None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_continued_encoding_has_the_same_vectors(encoder, tmp_path, monkeypatch, precision, processor):
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


@pytest.fixture
def whole() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


@pytest.mark.parametrize("cuts", [[], [20], [0], [7], [0, 3, 3, 19], [1, 2, 20, 20]])
def test_reads_like_an_array(whole, cuts):
    vectors, rng = ShardedVectors(np.split(whole, cuts)), np.random.default_rng(len(cuts))
    assert (len(vectors), vectors.shape) == (20, (20, 3))
    for start, stop in [*rng.integers(-25, 26, (200, 2)).tolist(), (None, None), (3, None), (None, -4)]:
        for step in (None, 1, 3, -2):
            np.testing.assert_array_equal(vectors[start:stop:step], whole[start:stop:step])
    for length in (0, 1, 5, 40):
        rows = rng.integers(0, 20, length).astype(np.int32)
        np.testing.assert_array_equal(vectors[rows], whole[rows])
        assert vectors[rows].dtype == np.float32 and vectors[rows].shape == (length, 3)


def test_a_slice_inside_a_shard_is_a_view(whole):
    vectors = ShardedVectors(np.split(whole, [8]))
    assert np.shares_memory(vectors[8:20], whole) and np.shares_memory(vectors[2:5], whole)


@pytest.mark.parametrize("rows", [[-1], [3, 20], [0.5], [True] * 20, 3])
def test_rows_that_do_not_exist_are_an_error(whole, rows):
    with pytest.raises(IndexError if rows in ([-1], [3, 20]) else TypeError):
        ShardedVectors(np.split(whole, [8]))[np.array(rows)]


@pytest.mark.parametrize("shards", [1, 2, 3, 8, 50])
@pytest.mark.parametrize("texts", [0, 1, 2, 40])
def test_shards_have_about_equally_many_tokens(texts, shards):
    for seed in range(20):
        lengths = np.random.default_rng(seed).integers(0, [3, 512][seed % 2], texts)
        bounds = shard_bounds(lengths, shards)
        assert bounds.shape == (shards + 1,) and bounds[0] == 0 and bounds[-1] == texts
        assert (np.diff(bounds) >= 0).all()
        tokens = [lengths[a:b].sum() for a, b in pairwise(bounds)]
        assert max(tokens) <= lengths.sum() / shards + lengths.max(initial=0)


def test_one_long_text_is_a_shard():
    assert shard_bounds(np.array([1, 1, 1, 90, 1, 1]), 3).tolist() == [0, 3, 4, 6]


def encode(world: World, folder: Path, model: Path, records=RECORDS, stop_after: int | None = None):
    encoder = Recording(tiny_encoder(model), stop_after)
    tokens = tokens_of(encoder.encoder, records)
    return encoder, lambda: encode_shards(folder, KEY, encoder, tokens, *SETTINGS, "documents", world)


def encoded(world: World, *arguments) -> dict:
    encoder, run = encode(world, *arguments)
    vectors = run()
    mapped = [isinstance(one, np.memmap) and not one.flags.writeable for one in vectors.shards if len(one)]
    lengths = list(map(len, vectors.shards))
    found = {"rows": encoder.rows, "vectors": np.array(vectors[:]), "lengths": lengths}
    return {**found, "first": vectors.first, "mapped": mapped}


@pytest.mark.parametrize(("size", "texts"), [(2, 12), (3, 12), (3, 2)])
def test_each_process_encodes_a_shard(run_processes, tiny_bert, tmp_path, size, texts):
    ends = run_processes(size, encoded, tmp_path / "vectors", tiny_bert, RECORDS[:texts])
    expected = encoded(World(), tmp_path / "alone", tiny_bert, RECORDS[:texts])
    assert [row for end in ends for row in sorted(end["rows"])] == list(range(texts))
    assert [end["first"] for end in ends] == [0, *np.cumsum(ends[0]["lengths"])[:-1]]
    names = sorted(path.name for path in (tmp_path / "vectors").iterdir())
    assert names == [f"{rank}-of-{size}" for rank in range(size)]
    for end in ends:
        np.testing.assert_array_equal(end["vectors"], ends[0]["vectors"])
        np.testing.assert_allclose(end["vectors"], expected["vectors"], atol=1e-5)
        assert end["mapped"] and all(end["mapped"])
    assert expected["mapped"] == [True]


def interrupted_then_encoded(world: World, folder: Path, model: Path) -> tuple:
    """Rank 1 ends after a batch; the others wait at the barrier, and must not continue without its rows."""
    first, run = encode(world, folder, model, RECORDS, 1 if world.rank == 1 else None)
    with pytest.raises((KeyboardInterrupt, RuntimeError)) as error:
        run()
    if world.rank == 1:
        world.barrier()
    world.barrier()
    again = encoded(world, folder, model)
    return first.rows, again["rows"], str(error.value), again["vectors"]


def test_an_interrupted_shard_is_continued(run_processes, tiny_bert, tmp_path):
    ends = run_processes(2, interrupted_then_encoded, tmp_path / "vectors", tiny_bert)
    (whole, nothing, message, _), (some, rest, _, vectors) = ends
    assert whole and nothing == [] and "1-of-2 lacks vectors from row 0" in message
    assert set(some) < set(rest) and sorted(whole + rest) == list(range(12))
    np.testing.assert_allclose(vectors, encoded(World(), tmp_path / "alone", tiny_bert)["vectors"], atol=1e-5)


def test_shards_of_another_number_of_processes_stay(run_processes, tiny_bert, tmp_path):
    """A refresher of one process shares the folder of a trainer of two, which keeps reading its shards."""
    run_processes(2, encoded, tmp_path / "vectors", tiny_bert)
    assert len(encoded(World(), tmp_path / "vectors", tiny_bert)["rows"]) == 12
    assert sorted(path.name for path in (tmp_path / "vectors").iterdir()) == ["0-of-1", "0-of-2", "1-of-2"]
    assert [end["rows"] for end in run_processes(2, encoded, tmp_path / "vectors", tiny_bert)] == [[], []]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/3/5", "a/b", "1/0", "-1/3", ""])
def test_a_shard_is_a_number_of_a_number(text):
    assert Shard.parse("3/3") == (3, 3) and str(Shard.parse("2/3")) == "2/3"
    with pytest.raises(ValueError, match=f"--shard {text}: expected I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("texts", [1, 15, 16, 17, 400, 100_000])
@pytest.mark.parametrize("tokens_per_batch", [1, 64, 8192])
def test_shards_are_whole_windows_that_cover_the_texts_once(texts, tokens_per_batch):
    windows = text_windows(texts, tokens_per_batch)
    assert windows[0] == 0 and windows[-1] == texts and (np.diff(windows) > 0).all()
    assert len(windows) - 1 >= min(texts, 9)
    for of in {1, 2, 7, len(windows) - 1} & set(range(1, len(windows))):
        parts = [Shard(number, of).cut(windows) for number in range(1, of + 1)]
        assert np.concatenate([part[:-1] for part in parts]).tolist() == windows[:-1].tolist()
        assert [part[-1] for part in parts] == [*(part[0] for part in parts[1:]), texts]
        lengths = [len(part) for part in parts]
        assert min(lengths) > 1 and max(lengths) - min(lengths) <= 1
    with pytest.raises(ValueError, match=rf"has {len(windows) - 1} shards at most"):
        Shard(1, len(windows)).cut(windows)
