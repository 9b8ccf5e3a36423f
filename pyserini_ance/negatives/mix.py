"""Sources made of others' tables: a mix of several sources, and the previous stage's tables (momentum).

A table keeps the order and the origin of every candidate.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, cast

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pyserini_ance.data.known_positives import repeats
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext, Source, TableSource, mined_by
from pyserini_ance.negatives.table import PADDING, NegativeTable, promoted_in
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.components import component_of

MAX_ORIGINS = 256  # a table stores origins as uint8
ROWS_PER_DRAW = 65_536


def sample(table: NegativeTable, n: int, rng: np.random.Generator, first: int = 0) -> NegativeTable:
    """`n` candidates of each anchor, uniform without replacement; all candidates of an anchor with fewer.

    `first` anchors are in the shares before this one, and get the same candidates as without shares.
    """
    present = table.candidates != PADDING
    width = present.shape[1]
    for start in range(0, first, ROWS_PER_DRAW):
        rng.random((min(ROWS_PER_DRAW, first - start), width), np.float32)
    keys = np.where(present, rng.random(present.shape, np.float32), np.inf)
    chosen = np.zeros(present.shape, bool)
    np.put_along_axis(chosen, np.argsort(keys, axis=1, kind="stable")[:, :n], True, axis=1)
    return table.selected(chosen & present, n)


def concatenate(
    tables: Sequence[NegativeTable], source: str, dropped: dict[str, int], world: World
) -> NegativeTable:
    """One table of `source` with all candidates of each anchor, table after table; duplicates are kept.

    The tables are over the same anchors, and each has an `origin` array. All processes make the call, each
    for its share of the anchors; the tables of all shares are equally wide. Raises ValueError for more than
    MAX_ORIGINS origins.
    """
    first = tables[0]
    origins = tuple(dict.fromkeys(origin for table in tables for origin in table.origins))
    if len(origins) > MAX_ORIGINS:
        cure = "Start a stage without momentum."
        raise ValueError(f"candidates of {len(origins)} origins in one table; at most {MAX_ORIGINS}. {cure}")
    # Each table's `origin` points into `origins`.
    numbers = [np.array([origins.index(one) for one in table.origins], np.uint8) for table in tables]
    renumbered = [number[table.origin] for number, table in zip(numbers, tables, strict=True)]
    whole = NegativeTable(
        first.anchor_side,
        first.candidate_side,
        first.anchors,
        candidates=np.concatenate([table.candidates for table in tables], axis=1),
        scores=np.concatenate([table.scores for table in tables], axis=1),
        source=source,
        dropped=dropped,
        origins=origins,
        origin=np.concatenate(renumbered, axis=1),
        promoted=None if all(table.promoted is None for table in tables) else promoted_in(tables),
    )
    width = int(world.gather_rows(np.array([whole.counts.max(initial=0)])).max())
    return whole.selected(whole.candidates != PADDING, width)


class Mix(TableSource):
    """With `weights`, a sample of `top_k` candidates per anchor; without, all that the sources retrieve.

    The latter is what the code of ANCE-Tele does: its pools grow to 60, 120, 180 candidates. A candidate
    that several sources retrieve is kept several times and drawn as often, unless `duplicates: drop`.
    The weights of Sun et al. 2022 (arXiv:2210.17167, Eq. 5 and 6, appendix C.2) are alpha, the share of
    momentum in all candidates, and beta, the share of lookahead in the new ones: `weights: [1 - alpha,
    alpha]` over a mix of `[1 - beta, beta]`.
    """

    kind: Literal["mix"] = "mix"
    sources: tuple[Annotated[Source, component_of("negatives")], ...] = Field(min_length=1)
    """The sources to mix; each has a table."""
    weights: tuple[PositiveFloat, ...] | None = None
    """One weight per source; `top_k` candidates are sampled from the sources in these proportions."""
    top_k: PositiveInt | None = None
    """The number of candidates sampled per anchor; required with `weights`."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Keep or drop repeated candidates of an anchor (Sun et al. 2022, Table 8)."""

    # A class variable elsewhere; here it depends on the sources.
    @property
    def is_dynamic(self) -> bool:  # type: ignore[override]
        return any(source.is_dynamic for source in self.sources)

    @property
    def components(self) -> tuple[Source, ...]:
        return tuple(leaf for source in self.sources for leaf in source.components)

    @model_validator(mode="after")
    def check_mix(self) -> "Mix":
        for position, source in enumerate(self.sources):
            if not isinstance(source, TableSource):
                cure = "list it under `negatives:`, next to the mix"
                raise ValueError(f"sources.{position}: `{source.kind}` has no table to be mixed; {cure}")
            if source.draw_settings:
                raise ValueError(
                    f"sources.{position}.{source.draw_settings[0]} has no effect inside a mix: the mix draws "
                    "for all its sources. Remove it."
                )
        if (self.weights is None) != (self.top_k is None):
            raise ValueError("set both `weights` and `top_k`, or neither (take all candidates)")
        if self.weights and len(self.weights) != len(self.sources):
            counts = f"{len(self.weights)} weights for {len(self.sources)} sources"
            raise ValueError(f"{counts}; pass one for each")
        return self

    def mine(self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext) -> NegativeTable:
        # Each source has random choices of its own.
        contexts = [replace(context, key=(*context.key, i)) for i in range(len(self.sources))]
        mined = [
            mined_by(cast(TableSource, source), snapshot, anchor_set, own)  # check_mix
            for source, own in zip(self.sources, contexts, strict=True)
        ]
        tables = [table.of_generation(context.generation) for table in mined]
        if self.weights and self.top_k:
            tables = [
                sample(table, size, random_stream("mix", *own.key), anchor_set.first)
                for table, size, own in zip(tables, shares(self.weights, self.top_k), contexts, strict=True)
            ]
        names = dict.fromkeys(name for table in mined for name in table.dropped)
        dropped = {name: sum(table.dropped.get(name, 0) for table in mined) for name in names}
        # The positives' ranks by the model, or in another ranking if no source asks the model.
        by_model = [any(leaf.scores_comparable for leaf in source.components) for source in self.sources]
        order = sorted(range(len(mined)), key=lambda position: not by_model[position])
        ranks = (mined[position].positive_ranks for position in order)
        found = next((one for one in ranks if one is not None), None)
        mixed = replace(concatenate(tables, self.kind, dropped, snapshot.world), positive_ranks=found)
        if self.duplicates == "keep":
            return mixed
        present = mixed.candidates != PADDING
        repeated = present & repeats(mixed.candidates)
        unique = mixed.selected(present & ~repeated, mixed.candidates.shape[1])
        return replace(unique, dropped={**dropped, "repeats": int(repeated.sum())})


class Momentum(TableSource):
    """All candidates of the previous stage's last tables of the term of the same name; duplicates are kept.

    Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, Eq. 5.

    The first stage has no previous tables (Eq. 7) and cannot use this source. Scores are those of the
    earlier mining. Pairs that the previous stage promoted are neither candidates nor positives. An anchor
    that they lack, a question with a new positive, has no candidates of them.
    """

    kind: Literal["momentum"] = "momentum"
    uses_previous_tables: ClassVar[bool] = True

    def mine(self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext) -> NegativeTable:
        if not context.previous_stage:
            cure = "remove this source from the first stage"
            raise ValueError(f"negatives momentum: there are no tables of a previous stage; {cure}")
        own = [table.filled_up(anchor_set.anchors) for table in context.previous_stage]
        table = concatenate([replace(one, promoted=None) for one in own], self.kind, {}, snapshot.world)
        split = anchor_set.split.with_positives(promoted_in(own))  # by any of them
        return table.excluding(table.anchors, replace(anchor_set, split=split))


def shares(weights: tuple[float, ...], total: int) -> list[int]:
    """Split `total` into whole numbers in proportion to `weights`, by the largest remainder method."""
    exact = [total * weight / sum(weights) for weight in weights]
    sizes = [int(size) for size in exact]
    order = sorted(range(len(sizes)), key=lambda i: sizes[i] - exact[i])
    for i in order[: total - sum(sizes)]:
        sizes[i] += 1
    return sizes
