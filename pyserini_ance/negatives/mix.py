"""Mix: several sources in one table, a sample of each or all of each; mixes may hold mixes."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pyserini_ance.data.collection import Side
from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.mixing import concatenate, sample, without_repeats
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import Source, TableSource
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.parts import part_of

OF_THE_DRAW = ("per_query", "when_short", "sample")


class Mix(TableSource):
    """With `weights`, `depth` candidates of each anchor, drawn from each source in proportion, uniformly from what it found;
    without, all that the sources found (the code of ANCE-Tele, whose pools grow by that: 60, 120, 180).

    A candidate that several sources found stands there several times, and is drawn as often, unless `duplicates: drop`
    (Sun et al. 2022, arXiv:2210.17167, Table 8). Of that paper's weights, Eq. 5 and 6 and appendix C.2, alpha is the share of
    momentum in all, beta that of lookahead in what is new: `weights: [1 - alpha, alpha]` over a mix of `[1 - beta, beta]`.
    """

    kind: Literal["mix"] = "mix"
    sources: tuple[part_of("negatives"), ...] = Field(min_length=1)
    weights: tuple[PositiveFloat, ...] | None = None
    depth: PositiveInt | None = None
    duplicates: Literal["keep", "drop"] = "keep"

    @property
    def refreshed(self) -> bool:
        return any(source.refreshed for source in self.sources)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(source.needs for source in self.sources))

    @property
    def leaves(self) -> tuple[Source, ...]:
        return tuple(leaf for source in self.sources for leaf in source.leaves)

    def most_candidates(self, former: int) -> int:
        return self.depth or sum(source.most_candidates(former) for source in self.sources)

    @model_validator(mode="after")
    def can_be_mixed(self):
        for position, source in enumerate(self.sources):
            if not source.has_table:
                raise ValueError(f"sources.{position}: `{source.kind}` has no table to be mixed; list it under `negatives:` beside the mix")
            said = [name for name in OF_THE_DRAW if hasattr(source, name) and getattr(source, name) != type(source).model_fields[name].default]
            if said:
                raise ValueError(f"sources.{position}: {said[0]} says nothing within a mix, which draws for all its sources; leave it out there")
        if (self.weights is None) != (self.depth is None):
            raise ValueError("`weights` and `depth` go together: so many candidates, in these proportions; without both, all are taken")
        if self.weights and len(self.weights) != len(self.sources):
            raise ValueError(f"{len(self.weights)} weights for {len(self.sources)} sources; give one each")
        return self

    def check_data(self, direction: Direction) -> None:
        super().check_data(direction)
        for source in self.sources:
            source.check_data(direction)

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        episodes = [episode.part(position) for position in range(len(self.sources))]
        found = [source.mine(snapshot, anchor, own) for source, own in zip(self.sources, episodes, strict=True)]
        tables = [table.of_generation(episode.generation) for table in found]
        if self.weights:
            sizes = shares(self.weights, self.depth)
            tables = [sample(table, size, own.rng()) for table, size, own in zip(tables, sizes, episodes, strict=True)]
        dropped = {name: sum(table.dropped.get(name, 0) for table in found) for name in {n for table in found for n in table.dropped}}
        mixed = concatenate(tables, self.kind, dropped)
        return mixed if self.duplicates == "keep" else without_repeats(mixed)


def shares(weights: tuple[float, ...], total: int) -> list[int]:
    """Whole numbers in proportion to `weights` that add up to `total`: what rounding down leaves goes to the largest remainders."""
    exact = [total * weight / sum(weights) for weight in weights]
    sizes = [int(size) for size in exact]
    order = sorted(range(len(sizes)), key=lambda i: sizes[i] - exact[i])
    for i in order[: total - sum(sizes)]:
        sizes[i] += 1
    return sizes
