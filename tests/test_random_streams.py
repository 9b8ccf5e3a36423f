"""Random streams: no two of different purposes or numbers are the same, and recorded ones stay."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import pyserini_ance
from pyserini_ance.random_streams import dropout_seed, random_key, random_stream

SEEDS, STAGES, TERMS, SOURCES = (0, 42, 43, (1 << 32) + 42), range(3), range(1, 4), range(3)
STEPS = (*range(12), 120, 180, 65_535, 600_000)
# The numbers of every purpose, as its caller counts them. Steps and epochs have the same range.
STUDIES = ["distances", "distances: documents", "forgetting", "gradient-norms", "gradient-norms: negatives"]
STUDIES += ["negative-overlap", "negative-swing", "positive-neighbors", "t-sne", "training-retrieval"]
STUDY_STREAMS = [f"study {name}" for name in STUDIES]
ONCE = ["dev sample", "index training vectors", "teacher training lists", *STUDY_STREAMS]
NUMBERS = {
    **{purpose: [()] for purpose in ONCE},
    "queries": [*itertools.product(STAGES, STEPS)],
    "corrected vectors": [*itertools.product(STAGES, STEPS)],
    "queries since an adoption": [*itertools.product(STAGES, STEPS[:9], STEPS)],
    "order of candidates": [*itertools.product(STAGES, TERMS, SOURCES, STEPS)],
    "positives": [*itertools.product(STAGES, STEPS, [0])],
    "negatives": [*itertools.product(STAGES, STEPS, TERMS, SOURCES), (0, 0, 0, 1)],
    "mining": [
        *itertools.product(STAGES, STEPS, range(3), SOURCES),
        *itertools.product(STAGES, STEPS, range(3), SOURCES, SOURCES),
    ],
    "mix": [
        *itertools.product(STAGES, STEPS, range(3), SOURCES, SOURCES),
        *itertools.product(STAGES, STEPS, range(3), SOURCES, SOURCES, SOURCES),
        *itertools.product(STAGES, STEPS[:3], range(3), SOURCES, SOURCES, SOURCES, SOURCES),
    ],
}


def test_no_two_keys_are_the_same():
    states: dict[bytes, tuple] = {}
    for seed, (purpose, keys) in itertools.product(SEEDS, NUMBERS.items()):
        for numbers in keys:
            state = random_key(purpose, seed, *numbers).generate_state(4).tobytes()
            assert state not in states, ((purpose, seed, numbers), states[state])
            states[state] = (purpose, seed, numbers)
    assert len(states) > 30_000


def test_every_purpose_in_the_package_is_drawn_above():
    package = Path(pyserini_ance.__file__).parent
    paths = [*package.rglob("*.py"), *(package.parent / "benchmarks").rglob("*.py")]
    call = re.compile(r'(?:random_stream|sampled_anchors|run\.sample)\(\s*"([^"]+)"')
    calls = {purpose for path in paths for purpose in call.findall(path.read_text())}
    orders = re.findall(r'"(queries[^"]*)"', (package / "trainer" / "batch.py").read_text())
    assert {*calls, *orders} == NUMBERS.keys()


@pytest.mark.parametrize("numbers", [(), (0, 3), (0, 3, 0), (1, 3, 2, 0), (0, 40, 0, 1, 2)])
def test_recorded_streams_are_numpys_of_the_numbers(numbers):
    purpose = ["index training vectors", "", "queries", "positives", "negatives", "mix"][len(numbers)]
    expected = np.random.default_rng(np.random.SeedSequence(42, spawn_key=numbers)).random(5)
    np.testing.assert_array_equal(random_stream(purpose, 42, *numbers).random(5), expected)


def test_numbers_of_numpy_are_numbers():
    for purpose in ("queries", "mining"):
        key = [random_key(purpose, 7, of(1), of(2)).generate_state(4) for of in (int, np.int32, np.int64)]
        np.testing.assert_array_equal(key[0], key[1])
        np.testing.assert_array_equal(key[0], key[2])


@pytest.mark.parametrize(("seed", "number"), [(-1, 0), (1 << 128, 0), (7, -1), (7, 1 << 32)])
def test_a_number_that_might_be_another_key_is_an_error(seed, number):
    with pytest.raises(ValueError, match=rf"'queries' for seed {seed} and numbers \(0, {number}\); expected"):
        random_stream("queries", seed, 0, number)


def test_no_two_dropouts_have_the_same_seed():
    keys = itertools.product(SEEDS, STAGES, STEPS, range(4), range(6), ("query", "document"))
    seeds = [dropout_seed(*key, rank=rank) for key in keys for rank in range(8)]
    assert len(set(seeds)) == len(seeds) > 50_000
