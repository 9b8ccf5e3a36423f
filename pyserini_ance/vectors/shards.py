"""Shards of an encoding: how texts are cut into them."""

from typing import NamedTuple

import numpy as np

LEAST_WINDOWS = 16


class Shard(NamedTuple):
    """Part `number` of `of` contiguous parts of a corpus; the first has number 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str, option: str = "--shard") -> "Shard":
        """Read `3/8`. Raises ValueError for anything else."""
        number, _, of = text.partition("/")
        if number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of):
            return cls(int(number), int(of))
        raise ValueError(f"{option} {text}: expected I/N, part I of N, from 1/N to N/N")

    def cut(self, windows: np.ndarray) -> np.ndarray:
        """The bounds (w + 1,) of the shard's windows, out of `windows` (W + 1,), those of the whole corpus.

        Raises ValueError if there are fewer windows than shards.
        """
        count = len(windows) - 1
        if self.of > count:
            raise ValueError(
                f"--shard {self}: a corpus of {windows[-1]:,} documents has {count} shards at most with this "
                "--tokens-per-batch"
            )
        return windows[count * (self.number - 1) // self.of : count * self.number // self.of + 1]

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def text_windows(texts: int, tokens_per_batch: int) -> np.ndarray:
    """(W + 1,) rows: the bounds of windows of consecutive texts, which no batch and no shard divides.

    They depend on the number of texts and the size of a batch alone, so that a text is in the same batch in
    every shard, and its vector has the same bits. A window fills dozens of batches, sorted by length, except
    in a corpus of fewer than `LEAST_WINDOWS` such windows.
    """
    size = max(1, min(tokens_per_batch // 2, -(-texts // LEAST_WINDOWS)))
    return np.append(np.arange(0, texts, size), texts)
