"""A source of negatives: what a recipe lists under `negatives:`."""

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt, model_validator

from pyserini_ance.data.collection import Collection, Side, Split
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.passages import repeats
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import screen
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.parts import Part, part_of

PLURALS = {"query": "queries", "document": "documents"}


class Source(Part):
    """`per_query` negatives are drawn for each anchor of a step: each query, or each positive of a term with document anchors.

    `refreshed` sources are mined again at each refresh, `live` ones search in each step; `needs` names what the run must make
    ready (`bm25`). `has_table`: it is mined; `takes_over`: from the tables of the stage before; `ranked`: by the anchors' own
    scores; `asks_positives`: with the vectors of positives, one each.
    """

    per_query: PositiveInt = 1
    refreshed: ClassVar[bool] = False
    live: ClassVar[bool] = False
    has_table: ClassVar[bool] = False
    takes_over: ClassVar[bool] = False
    ranked: ClassVar[bool] = False
    asks_positives: ClassVar[bool] = False

    @property
    def leaves(self) -> tuple["Source", ...]:
        """The sources that it is made of: itself, unless it mixes others."""
        return (self,)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def most_candidates(self, former: int) -> int:
        """Of an anchor in its table, as far as the settings tell, when it had `former` in those of the stage before; 0 without a table."""
        return getattr(self, "depth", 0) if self.has_table else 0

    def check_data(self, direction: Direction) -> None:
        """Raises ValueError or FileNotFoundError, before anything is trained, when this data cannot be served."""
        refuse_too_few(self.per_query, direction)

    @property
    def files(self) -> tuple[Path, ...]:
        """That it is mined from. Raises FileNotFoundError for one that is not there."""
        return ()

    def read_ahead(self, collection: Collection, direction: Direction) -> None:
        """Raises, before anything is trained, what mining would: ValueError for `files` of which no table can be made."""

    @abstractmethod
    def draw(self, rows: np.ndarray, table: NegativeTable | None, direction: Direction, rng: np.random.Generator) -> np.ndarray:
        """(B, per_query) candidates, rows of the other side, for the anchors `rows` (B,); PADDING where there is none."""


class TableSource(Source):
    """A source with a table over all anchors of its term's direction, from which `per_query` of an anchor's candidates are drawn.

    `when_short` decides about anchors with fewer candidates than `per_query`: an error, or random ones fill up.
    """

    when_short: Literal["error", "random"] = "error"
    has_table: ClassVar[bool] = True

    @abstractmethod
    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        """The table over `snapshot.direction(anchor).anchors`, in that order, without known positives."""

    @property
    def deeper(self) -> str:
        """What gives anchors more candidates."""
        return "raise depth"

    def check(self, table: NegativeTable, collection: Collection, split: Split) -> int:
        """The number of anchors with fewer candidates than `per_query`; raises ValueError if that is not allowed."""
        short = np.flatnonzero(table.counts < self.per_query)
        if len(short) and self.when_short == "error":
            ids = (split.queries if table.anchor_side == "query" else collection.documents).ids
            first = ", ".join(f"{ids[table.anchors[place]]} ({table.counts[place]})" for place in short[:5])
            raise ValueError(
                f"negatives {self.kind}: {len(short)} of {len(table.anchors)} {PLURALS[table.anchor_side]} have fewer than "
                f"per_query={self.per_query} candidates, first {first}. "
                f"Lower per_query, {self.deeper}, or set when_short: random to fill up with random ones."
            )
        return len(short)

    def draw(self, rows: np.ndarray, table: NegativeTable | None, direction: Direction, rng: np.random.Generator) -> np.ndarray:
        return fill_random(table.draw(rows, self.per_query, rng), rows, direction, rng)


class MinedSource(TableSource):
    """One that finds candidates of its own, in an order.

    `guards` are the rules that take out false negatives, beside known positives, which always go; where there are some, `spare`
    candidates more than a table needs are looked at. `sample` draws `per_query` of an anchor's candidates, or takes the hardest:
    the first. `scores_positives`: it can say what an anchor's positive scores, which some guards ask.
    """

    guards: tuple[part_of("guards"), ...] = ()
    spare: NonNegativeInt = 100
    sample: Literal["uniform", "hardest"] = "uniform"
    scores_positives: ClassVar[bool] = False

    @model_validator(mode="after")
    def guards_can_be_asked(self):
        if not self.scores_positives and (asking := [guard.kind for guard in self.guards if guard.compares]):
            raise ValueError(f"guard {asking[0]} compares scores with the positive's, but {self.kind} gives positives no score; leave the guard out")
        return self

    def check_data(self, direction: Direction) -> None:
        super().check_data(direction)
        for guard in self.guards:
            guard.check_data(direction)

    @property
    def guarded_depth(self) -> int:
        """How many candidates to fetch beyond a table's depth for what guards take out."""
        return sum(guard.extra_depth for guard in self.guards) + (self.spare if self.guards else 0)

    def extra_depth(self, direction: Direction) -> int:
        """The same, and for known positives."""
        return int(direction.relation.counts.max()) + self.guarded_depth

    @property
    def deeper(self) -> str:
        return "raise depth, raise spare or loosen guards" if self.guards else super().deeper

    def table_of(self, found: Candidates, depth: int) -> NegativeTable:
        """The table of the first `depth` candidates of each anchor that are no known positives and pass all guards."""
        direction = found.direction
        candidates, scores, dropped = screen(found, self.guards, depth)
        return NegativeTable(direction.anchor, direction.candidate, direction.anchors, candidates, scores, self.kind, dropped)

    def draw(self, rows: np.ndarray, table: NegativeTable | None, direction: Direction, rng: np.random.Generator) -> np.ndarray:
        if self.sample == "uniform":
            return super().draw(rows, table, direction, rng)
        return fill_random(table.first(rows, self.per_query), rows, direction, rng)


def fill_random(drawn: np.ndarray, rows: np.ndarray, direction: Direction, rng: np.random.Generator) -> np.ndarray:
    """`drawn` (B, n) with a candidate for each PADDING (last in its row): uniform, unlike all others in the row, never a known
    positive of the row's anchor. What was drawn stays, repeats included: they carry weight.

    Raises ValueError when there are too few for that.
    """
    empty = bad = drawn == PADDING
    if bad.any():
        refuse_too_few(drawn.shape[1], direction)
    drawn = drawn.astype(np.int64)
    while bad.any():
        drawn[bad] = rng.integers(0, direction.candidates, int(bad.sum()))
        bad = empty & (known_positive(direction.relation, rows, drawn) | repeats(drawn))
    return drawn.astype(np.int32)


def refuse_too_few(n: int, direction: Direction) -> None:
    """Raises ValueError when an anchor has fewer than `n` candidates that are not its known positives."""
    counts, total = direction.relation.counts, direction.candidates
    row = int(counts.argmax())
    if total - counts[row] < n:
        anchor = f"query {direction.split.queries.ids[row]}" if direction.anchor == "query" else f"the document of row {row}"
        raise ValueError(
            f"per_query={n} negatives, but {anchor} has only {total - counts[row]}: {counts[row]} of the {total} "
            f"{PLURALS[direction.candidate]} are its positives. Lower per_query."
        )
