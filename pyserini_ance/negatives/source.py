"""The base classes of sources of negatives, which a recipe lists under `negatives:`, and random draws."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from pyserini_ance.data.collection import PLURALS, Collection
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import NegativeTable, check_enough_candidates, fill_random
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.components import MiningComponent, SettingError
from pyserini_ance.storage.error_text import naming_own

DRAW_KEYS = ("num_negatives", "min_candidates", "sampling_strategy", "rolling")
MOST_FILLED = 0.1  # share of the anchors that may get random negatives without a warning


@dataclass(frozen=True)
class MiningContext:
    """What a mining call depends on besides the model and the anchors.

    generation: the name of the generation that the table is mined for (`<stage>-<step>`).
    previous_stage: the last tables of the same term in the previous stage.
    key: the key of all random choices: seed, stage, step, term, and the source's position; then its positions
    in mixes.
    """

    generation: str = ""
    previous_stage: tuple[NegativeTable, ...] = ()
    key: tuple[int, ...] = (0,)

    def rng(self) -> np.random.Generator:
        return random_stream("mining", *self.key)


class Source(MiningComponent):
    """A source of negatives.

    A term's anchors are the queries of a step, or their positives with `anchor: document`.

    is_dynamic: the source is mined again at each refresh.
    live: the source searches in each step.
    is_mined: the source has a table (see TableSource).
    uses_previous_tables: the table is made from those of the previous stage.
    scores_comparable: the table's scores are those between an anchor and its candidates, by the current
        model.
    """

    num_negatives: PositiveInt = 1
    """The number of negatives drawn for each anchor of a step."""
    is_dynamic: ClassVar[bool] = False
    live: ClassVar[bool] = False
    is_mined: ClassVar[bool] = False
    uses_previous_tables: ClassVar[bool] = False
    scores_comparable: ClassVar[bool] = False

    @property
    def components(self) -> tuple["Source", ...]:
        """The basic sources that this one is made of: itself, unless it mixes others."""
        return (self,)

    @property
    def draw_settings(self) -> tuple[str, ...]:
        """The keys that decide how negatives are drawn, not what is mined, where they differ from the
        default."""
        fields = type(self).model_fields
        return tuple(k for k in DRAW_KEYS if k in fields and getattr(self, k) != fields[k].default)

    def check_data(self, anchor_set: AnchorSet) -> None:
        super().check_data(anchor_set)
        check_enough_candidates(self.num_negatives, anchor_set)

    def read_ahead(self, collection: Collection, anchor_set: AnchorSet) -> None:
        """Raises, before training, what mining would raise: ValueError for `files` that are not valid."""

    @abstractmethod
    def draw(
        self, rows: np.ndarray, table: NegativeTable | None, anchor_set: AnchorSet, rng: np.random.Generator
    ) -> np.ndarray:
        """(B, num_negatives) int32 rows of the other side for the anchors `rows` (B,); PADDING if missing."""


class TableSource(Source):
    """A source with a table over all anchors of its term, from which the negatives of each step are drawn."""

    min_candidates: NonNegativeInt = 0
    """Leave anchors with fewer candidates out of training until the table is mined again, as the code of ANCE
    for OpenQA does with fewer than 2. Other anchors with fewer than `num_negatives` get random ones too."""
    rolling: bool = False
    """Whether an anchor's draws go through its candidates in a random order, so that each is drawn once
    before one is drawn again, as in the code of ANCE-Tele and of ANCE; false: each step draws anew."""
    is_mined: ClassVar[bool] = True

    @abstractmethod
    def mine(self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext) -> NegativeTable:
        """The table over `anchor_set.anchors`, in this order, without known positives.

        All processes of the snapshot's world make the call, each for its share of the anchors; what an anchor
        gets does not depend on the shares.
        """

    def without_short_anchors(self, table: NegativeTable) -> NegativeTable:
        """The table of the anchors that have `min_candidates`. Raises SettingError if none has."""
        enough = table.counts >= self.min_candidates
        if enough.all():
            return table
        if not enough.any():
            raise SettingError(
                f"negatives {self.kind}: none of {len(table.anchors)} {PLURALS[table.anchor_side]} has "
                f"min_candidates={self.min_candidates} candidates, so there is nothing to train on. Lower "
                "min_candidates, or loosen filters."
            )
        return table.of_anchors(table.anchors[enough])

    def num_short(self, table: NegativeTable) -> int:
        """The number of anchors with fewer than `num_negatives` candidates."""
        return int((table.counts < self.num_negatives).sum())

    def draw(
        self, rows: np.ndarray, table: NegativeTable | None, anchor_set: AnchorSet, rng: np.random.Generator
    ) -> np.ndarray:
        assert table is not None, f"a {self.kind} source draws from its table"
        return fill_random(self.draw_from(table, rows, rng), rows, anchor_set, rng)

    def draw_from(self, table: NegativeTable, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(B, num_negatives) candidates of the anchors `rows` (B,), PADDING where the table has too few."""
        return table.draw(rows, self.num_negatives, rng)


def warning_of_random_negatives(table: NegativeTable, num_short: int) -> str | None:
    """What to tell if more than `MOST_FILLED` of a table's anchors are filled up with random negatives."""
    total = len(table.anchors)
    if num_short <= MOST_FILLED * total:
        return None
    anchors = PLURALS[table.anchor_side]
    dropped = ", ".join(f"{name} {count:,}" for name, count in table.dropped.items() if count)
    return (
        f"negatives {table.source}: {num_short:,} of {total:,} {anchors} ({num_short / total:.0%}) have too "
        f"few candidates and get random negatives (dropped: {dropped or 'none'}). Loosen the filter that "
        f"drops most, raise top_k or oversample, or leave these {anchors} out with min_candidates."
    )


def mine_in_shares(
    source: TableSource, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext
) -> NegativeTable:
    """The source's table, the same for any number of processes, without anchors that have too few candidates.

    All processes make the call; each mines and filters for its share of the anchors.
    """
    world = snapshot.world
    own = mined_by(source, snapshot, replace(anchor_set, share=(world.rank, world.size)), context)
    return source.without_short_anchors(own if world.size == 1 else own.gathered(world))


def mined_by(
    source: TableSource, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext
) -> NegativeTable:
    """The result of the source's `mine`; an error in a class of the user's own names the class."""
    with naming_own(source.kind, "mine"):
        return source.mine(snapshot, anchor_set, context)
