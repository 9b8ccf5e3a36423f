"""Shards of vectors: read like one array, encoded by several real processes."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from helpers.recorded_encoder import RECORDS, SETTINGS, Recording, tiny_encoder, tokens_of

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors.encoding import ShardedVectors, encode_shards, shard_bounds
from pyserini_ance.vectors.shards import Shard, text_windows

KEY = {"weights": "abc"}


@pytest.fixture
def whole() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


@pytest.mark.parametrize("cuts", [[], [20], [0], [7], [0, 3, 3, 19], [1, 2, 20, 20]])
def test_reads_like_an_array(whole, cuts):
    vectors, rng = ShardedVectors(np.split(whole, cuts)), np.random.default_rng(len(cuts))
    assert (len(vectors), vectors.shape, vectors.dtype) == (20, (20, 3), np.float32)
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


@pytest.mark.parametrize(
    ("rows", "error"),
    [([-1], IndexError), ([3, 20], IndexError), ([0.5], TypeError), ([True] * 20, TypeError), (3, TypeError)],
)
def test_rows_that_do_not_exist_are_an_error(whole, rows, error):
    with pytest.raises(error):
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
    mapped = [
        isinstance(part, np.memmap) and not part.flags.writeable for part in vectors.shards if len(part)
    ]
    return {
        "rows": encoder.rows,
        "vectors": np.array(vectors[:]),
        "lengths": list(map(len, vectors.shards)),
        "first": vectors.first,
        "mapped": mapped,
    }


@pytest.mark.parametrize(("size", "texts"), [(2, 12), (3, 12), (3, 2)])
def test_each_process_encodes_a_shard(run_processes, tiny_bert, tmp_path, size, texts):
    ends = run_processes(size, encoded, tmp_path / "vectors", tiny_bert, RECORDS[:texts])
    expected = encoded(World(), tmp_path / "alone", tiny_bert, RECORDS[:texts])
    assert [row for end in ends for row in sorted(end["rows"])] == list(range(texts))
    assert [end["first"] for end in ends] == [0, *np.cumsum(ends[0]["lengths"])[:-1]]
    assert sorted(path.name for path in (tmp_path / "vectors").iterdir()) == [
        f"{rank}-of-{size}" for rank in range(size)
    ]
    for end in ends:
        np.testing.assert_array_equal(end["vectors"], ends[0]["vectors"])
        np.testing.assert_allclose(end["vectors"], expected["vectors"], atol=1e-5)
        assert end["mapped"] and all(end["mapped"])
    assert expected["mapped"] == [True]


def interrupted_then_encoded(
    world: World, folder: Path, model: Path
) -> tuple[list[int], list[int], str, np.ndarray]:
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
