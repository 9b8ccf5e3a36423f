"""Dropout as a function of where it happens: the same step, chunk, tower and process draw the same masks, whenever they run."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def dropout_of(*key: int | str, rank: int = 0) -> Iterator[None]:
    """Seed torch's generators from `key` (seed, stage, step, chunk, tower) and `rank`, and put their state back afterwards."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        seed = (int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8]) >> 1) + rank
        # Not torch.manual_seed: where CUDA has not been used, it formats the whole stack at every call (0.1 ms, under pytest 0.8).
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield
