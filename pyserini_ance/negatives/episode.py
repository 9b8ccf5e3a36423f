"""Episode: what tables are mined for, beside the model that they are mined with."""

from dataclasses import dataclass, replace

import numpy as np

from pyserini_ance.negatives.table import NegativeTable


@dataclass(frozen=True)
class Episode:
    """`generation` is the name of what is mined; `former` are the tables of the same term with which the stage before ended.

    `key` is where the random choices come from: seed, stage, step, and the source's place.
    """

    generation: str = ""
    former: tuple[NegativeTable, ...] = ()
    key: tuple[int, ...] = (0,)

    def rng(self) -> np.random.Generator:
        seed, *place = self.key
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(place)))

    def part(self, position: int) -> "Episode":
        """For a source within a source: random choices of its own."""
        return replace(self, key=(*self.key, position))
