"""Random streams: the generator of every random choice is made here, from its purpose and its numbers.

Different purposes or numbers give different streams, so that no choice repeats another by accident.
"""

import hashlib

import numpy as np

# Recorded results depend on these streams, whose keys hold no purpose: they are the numbers, and how many
# these are tells the purposes apart. With another count, the key is a digest, as for all other purposes.
KEYED_BY_COUNT = {
    "index training vectors": range(0, 1),
    "queries": range(2, 3),  # stage, epoch
    "positives": range(3, 4),  # stage, step, 0
    "negatives": range(4, 5),  # stage, step, term (from 1), source
    "mix": range(5, 64),  # stage, step, term, source, positions in mixes
}
WORD = 1 << 32  # numpy splits a larger number into two, which might be two numbers of another key


def random_stream(purpose: str, seed: int, *numbers: int) -> np.random.Generator:
    """The generator of the random choices of one purpose, such as `positives`, at `numbers`, such as stage
    and step.

    Equal arguments give equal streams, different ones different streams. Raises ValueError for a seed that is
    negative or above 2^128 - 1, and for a number that is negative or above 2^32 - 1.
    """
    return np.random.default_rng(random_key(purpose, seed, *numbers))


def random_key(purpose: str, seed: int, *numbers: int) -> np.random.SeedSequence:
    """The key of `random_stream`. Raises as it does."""
    seed, numbers = int(seed), tuple(map(int, numbers))
    if not 0 <= seed < WORD**4 or not all(0 <= number < WORD for number in numbers):
        raise ValueError(
            f"no random stream of {purpose!r} for seed {seed} and numbers {numbers}; expected a seed from 0 "
            "to 2^128 - 1, and numbers from 0 to 2^32 - 1"
        )
    if len(numbers) in KEYED_BY_COUNT.get(purpose, ()):
        # As entropy, (stage, step) and (stage, step, 0) were one stream: numpy pads it with zeros.
        return np.random.SeedSequence(seed, spawn_key=numbers)
    digest = hashlib.sha256(repr((purpose, seed, *numbers)).encode()).digest()
    return np.random.SeedSequence(int.from_bytes(digest))


def dropout_seed(*key: int | str, rank: int = 0) -> int:
    """The seed of torch's generators for dropout at `key` (seed, stage, step, chunk, ..., side) on `rank`: 63
    bits of a digest of the key."""
    return (int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8]) >> 1) + rank
