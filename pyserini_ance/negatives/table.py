"""NegativeTable: the candidates of each anchor in rank order, with origins; random ones where some lack."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyserini_ance.data import known_positives as known
from pyserini_ance.data.known_positives import PADDING as PADDING  # read together with negatives
from pyserini_ance.data.known_positives import PLURALS, Side, repeats
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.storage.files import read_json, save_array, write_json

if TYPE_CHECKING:
    from pyserini_ance.data.prepared import AnchorSet
    from pyserini_ance.distributed.world import World

ABOUT = "table.json"
ARRAYS = {
    "anchors": np.int32,
    "candidates": np.int32,
    "scores": np.float32,
    "origin": np.uint8,
    "positive_scores": np.float32,
    "promoted": np.int32,
}

# What is in place of a missing candidate, by array.
PADDINGS: dict[str, np.generic] = {
    "candidates": np.int32(PADDING),
    "scores": np.float32(-np.inf),
    "origin": np.uint8(0),
}

PER_ANCHOR = ("anchors", "candidates", "scores", "origin", "positive_scores", "positive_ranks", "margins")


@dataclass(frozen=True)
class Origin:
    """The kind of source that first retrieved a candidate, and the generation (`<stage>-<step>`)."""

    source: str
    generation: str

    def __str__(self) -> str:
        return f"{self.source} of {self.generation}"


@dataclass(frozen=True)
class NegativeTable:
    """The candidates of each anchor. No candidate is a known positive of its anchor.

    anchors: (A,) int32 rows, ascending.
    candidates: (A, n) int32 rows in rank order, then PADDING. A repeated candidate is drawn as often as it
        occurs.
    scores: (A, n) float32, those by which `source` ranked the candidates.
    dropped: the number of candidates that each filter removed.
    promoted: (P, 2) int32, ascending: anchor and candidate of the pairs that filters made positives, which
        they are in every step that draws from this table. None if no filter promotes.
    origin: (A, n) uint8 positions in `origins`, 0 at PADDING. None if `source` retrieved all candidates for
        this generation.
    positive_scores: (A,) float32, the score of each anchor's best known positive on the scale of `scores`,
        NaN where it has none. None if no draw needs them.
    positive_ranks: (A,) int32, the rank of each anchor's best known positive in the ranking that the
        candidates come from, 0 if it is not in there. None if that ranking has no positives. Not saved here:
        a generation keeps it next to its report, as it does `margins`.
    margins: (A,) float32, the score of that positive minus the candidates' mean score; NaN where it has none.
    """

    anchor_side: Side
    candidate_side: Side
    anchors: np.ndarray
    candidates: np.ndarray
    scores: np.ndarray
    source: str
    dropped: dict[str, int] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()
    origin: np.ndarray | None = None
    positive_scores: np.ndarray | None = None
    promoted: np.ndarray | None = None
    positive_ranks: np.ndarray | None = None
    margins: np.ndarray | None = None

    @property
    def counts(self) -> np.ndarray:
        """(A,) int64, the number of candidates of each anchor."""
        return (self.candidates != PADDING).sum(1)

    def draw(self, rows: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """(B, n) candidates of the anchors `rows` (B,), uniform without replacement, then PADDING."""
        choices = self.candidates[self.positions(rows)]
        return _lowest(rng.random(choices.shape), choices, n)

    def first(self, rows: np.ndarray, n: int) -> np.ndarray:
        """(B, n) candidates of the anchors `rows` (B,), the first in rank order, then PADDING."""
        return _padded(self.candidates[self.positions(rows), :n], n)

    def draw_in_turn(self, rows: np.ndarray, turns: np.ndarray, n: int, key: tuple[int, ...]) -> np.ndarray:
        """(B, n) candidates of the anchors `rows` (B,), the next `n` of a random order of their own.

        turns: (B,) how many times each anchor was drawn before. key: the seed, then what tells draws of
        different terms apart. The order of an anchor's candidates is endless: each occurs once before one
        occurs again, but for the last of a round, which are followed by the first. An anchor with fewer than
        `n` candidates gives all of them, then PADDING.
        Source: the collators of OpenMatch/ANCE-Tele, whose windows move by `n` each epoch; with
        `repeats_per_query` also microsoft/ANCE, where each sampled negative makes one triple.
        """
        choices = self.candidates[self.positions(rows)]
        drawn = np.full((len(rows), n), PADDING, np.int32)
        for position, (row, turn) in enumerate(zip(rows.tolist(), turns.tolist(), strict=True)):
            candidates = choices[position][choices[position] != PADDING]
            if not len(candidates):
                continue
            order = random_stream("order of candidates", *key, row).permutation(len(candidates))
            first, taken = (turn * n, n) if len(candidates) >= n else (0, len(candidates))
            drawn[position, :taken] = candidates[order[(first + np.arange(taken)) % len(candidates)]]
        return drawn

    def draw_ambiguous(self, rows: np.ndarray, n: int, rng: np.random.Generator, a: float) -> np.ndarray:
        """(B, n) candidates of the anchors `rows` (B,), then PADDING: those near the positive in score.

        They are drawn one after the other without replacement, each with a probability proportional to
        exp(-a (s(q, d-) - s(q, d+) - b)^2), with b = 0 as for the paper's results (Zhou et al. 2022, SimANS,
        arXiv:2210.11773). An anchor whose positive has no score draws uniformly.
        """
        assert self.positive_scores is not None, f"the table of {self.source} has no scores of positives"
        positions = self.positions(rows)
        choices = self.candidates[positions]
        # Differs from microsoft/SimXNS: it takes the mean score of the positives of a query, not the best.
        margins = self.scores[positions].astype(np.float64) - self.positive_scores[positions, None]
        log_weights = np.where(np.isnan(margins), 0.0, -a * margins**2)
        # The order of exponential arrival times with these rates is such a draw. In logarithms no weight
        # becomes 0, however far from the positive a score is.
        return _lowest(np.log(rng.standard_exponential(choices.shape)) - log_weights, choices, n)

    def positions(self, rows: np.ndarray) -> np.ndarray:
        positions = np.minimum(np.searchsorted(self.anchors, rows), len(self.anchors) - 1)
        assert (self.anchors[positions] == rows).all(), f"the table of {self.source} lacks anchors"
        return positions

    def excluding(self, rows: np.ndarray, anchor_set: "AnchorSet") -> "NegativeTable":
        """The table of the anchors `rows` (B,) alone, without what `anchor_set` says is never negative."""
        own = self.of_anchors(np.unique(rows))
        is_positive = anchor_set.never_negative(own.anchors, own.candidates)
        return own.selected((own.candidates != PADDING) & ~is_positive, own.candidates.shape[1])

    def selected(self, mask: np.ndarray, width: int) -> "NegativeTable":
        """The first `width` candidates of each anchor where `mask` (A, n) is true, in order."""
        arrays = {name: array for name in PADDINGS if (array := getattr(self, name)) is not None}
        chosen = select(mask, width, *((array, PADDINGS[name]) for name, array in arrays.items()))
        made: dict[str, Any] = dict(zip(arrays, chosen, strict=True))
        return replace(self, **made)

    def of_anchors(self, anchors: np.ndarray) -> "NegativeTable":
        """The table of these anchors (A,), ascending, alone."""
        positions = self.positions(anchors)
        chosen = {name: array[positions] for name in PER_ANCHOR if (array := getattr(self, name)) is not None}
        return replace(self, **chosen)

    def filled_up(self, anchors: np.ndarray) -> "NegativeTable":
        """The table of these anchors (A,), ascending; those that it lacks have no candidates."""
        is_known = np.isin(anchors, self.anchors)
        own = self.of_anchors(anchors[is_known])
        missing: dict[str, Any] = {**PADDINGS, "positive_ranks": 0}
        filled: dict[str, Any] = {"anchors": anchors}
        for name in PER_ANCHOR[1:]:
            if (array := getattr(own, name)) is not None:
                shape = (len(anchors), *array.shape[1:])
                filled[name] = np.full(shape, missing.get(name, np.nan), array.dtype)
                filled[name][is_known] = array
        return replace(self, **filled)

    def promoting(self, pairs: np.ndarray) -> "NegativeTable":
        """The same table, with more promoted pairs (P, 2)."""
        if not len(pairs):
            return self
        own = np.empty((0, 2), np.int32) if self.promoted is None else self.promoted
        return replace(self, promoted=np.unique(np.concatenate([own, pairs]), axis=0))

    def of_generation(self, name: str) -> "NegativeTable":
        """The same table with an `origin` array; `name` is the generation that it was mined for."""
        if self.origin is not None:
            return self
        origin = np.zeros(self.candidates.shape, np.uint8)
        return replace(self, origins=(Origin(self.source, name),), origin=origin)

    def origin_counts(self) -> dict[str, int]:
        """The number of candidates of each origin; empty if `source` retrieved all of them."""
        if self.origin is None:
            return {}
        counts = np.bincount(self.origin[self.candidates != PADDING], minlength=len(self.origins))
        return {str(origin): int(count) for origin, count in zip(self.origins, counts, strict=True)}

    def gathered(self, world: "World") -> "NegativeTable":
        """The tables of all processes, each over its share of the anchors, as one; all make the call."""
        width = int(world.gather_rows(np.array([self.candidates.shape[1]])).max())
        arrays: dict[str, Any] = {}
        for name in PER_ANCHOR:
            if (array := getattr(self, name)) is None:
                continue
            if name in PADDINGS:  # a share's table may be narrower
                missing = ((0, 0), (0, width - array.shape[1]))
                array = np.pad(array, missing, constant_values=PADDINGS[name])
            arrays[name] = world.gather_rows(array)
        counts = world.gather_rows(np.array([[*self.dropped.values()]], np.int64)).sum(0)
        dropped = dict(zip(self.dropped, counts.tolist(), strict=True))
        promoted = None if self.promoted is None else np.unique(world.gather_rows(self.promoted), axis=0)
        return replace(self, **arrays, promoted=promoted, dropped=dropped)

    def save(self, folder: Path) -> None:
        """Write a folder with one file per array; equal tables give equal bytes and hashes."""
        folder.mkdir(parents=True)
        shapes = {}
        for name, dtype in ARRAYS.items():
            if (array := getattr(self, name)) is not None:
                save_array(folder / f"{name}.npy", np.ascontiguousarray(array, dtype))
                shapes[name] = array.shape
        sides = {"anchor_side": self.anchor_side, "candidate_side": self.candidate_side}
        about = {**sides, "source": self.source, "dropped": dict(sorted(self.dropped.items()))}
        origins = {"origins": [asdict(origin) for origin in self.origins]} if self.origins else {}
        write_json(folder / ABOUT, {**about, **origins, "shapes": shapes})

    @classmethod
    def load(cls, folder: Path) -> "NegativeTable":
        """Open a table memory-mapped; processes share its pages. The manifest around it has the hashes."""
        about = read_json(folder / ABOUT)
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in about.pop("shapes")}
        origins = tuple(Origin(**origin) for origin in about.pop("origins", ()))
        return cls(**about, **arrays, origins=origins)


def select(mask: np.ndarray, width: int, *arrays: tuple[np.ndarray, np.generic]) -> list[np.ndarray]:
    """The first `width` entries of each row of the arrays where `mask` (A, n) is true, in order.

    arrays: pairs of an array (A, n) and its padding. Shorter rows end with the padding; the result has the
        padding's type.
    """
    kept = mask & (np.cumsum(mask, axis=1, dtype=np.int32) <= width)
    filled = np.arange(min(width, mask.shape[1])) < kept.sum(1)[:, None]
    chosen = [np.full(filled.shape, padding) for _, padding in arrays]
    for selected, (array, _) in zip(chosen, arrays, strict=True):
        selected[filled] = array[kept]
    return chosen


def _lowest(keys: np.ndarray, choices: np.ndarray, n: int) -> np.ndarray:
    """(B, n) of `choices` (B, k), those with the lowest keys (B, k), then PADDING."""
    columns = np.argsort(np.where(choices != PADDING, keys, np.inf), axis=1)[:, :n]
    return _padded(np.take_along_axis(choices, columns, 1), n)


def _padded(drawn: np.ndarray, n: int) -> np.ndarray:
    return np.pad(drawn, ((0, 0), (0, max(0, n - drawn.shape[1]))), constant_values=PADDING)


def promoted_in(tables: Iterable[NegativeTable]) -> np.ndarray:
    """(P, 2) int32, ascending: the pairs that any of the tables promotes, each once."""
    found = [table.promoted for table in tables if table.promoted is not None and len(table.promoted)]
    return np.unique(np.concatenate([np.empty((0, 2), np.int32), *found]), axis=0)


def turnover(new: NegativeTable, old: NegativeTable) -> float:
    """The share of `new`'s candidates that `old` lacks for the same anchor, over the same anchors."""
    present = new.candidates != PADDING
    fresh = present & ~is_in_line(new.candidates, old.candidates)
    return float(fresh.sum() / present.sum()) if present.any() else 0.0


def is_in_line(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    """(A, n) bool: whether each of `rows` (A, n) is in its line of `among` (A, k); PADDING never is."""
    found = np.zeros(rows.shape, bool)
    for start in range(0, len(rows), known.LINES_PER_BLOCK):
        block = slice(start, start + known.LINES_PER_BLOCK)
        part, others = rows[block].astype(np.int64), among[block].astype(np.int64)
        width = int(max(part.max(initial=0), others.max(initial=0))) + 2  # PADDING is below the line's others
        lines = np.arange(len(part))[:, None] * width
        keys = (lines + np.sort(others, axis=1)).ravel()
        found[block] = known.is_in_sorted(lines + part, keys) & (part != PADDING)
    return found


def fill_random(
    drawn: np.ndarray, rows: np.ndarray, anchor_set: "AnchorSet", rng: np.random.Generator
) -> np.ndarray:
    """`drawn` (B, n) with each PADDING replaced by a random candidate of the anchor in `rows` (B,).

    Random candidates are uniform, differ from all others in their line, and are never positives.
    Entries that were drawn stay, repeats included, because repeats carry weight. Raises ValueError if an
    anchor has too few candidates.
    """
    empty = bad = drawn == PADDING
    if bad.any():
        check_enough_candidates(drawn.shape[1], anchor_set)
    drawn = drawn.astype(np.int64)
    while bad.any():
        drawn[bad] = rng.integers(0, anchor_set.candidates, int(bad.sum()))
        bad = empty & (anchor_set.never_negative(rows, drawn) | repeats(drawn))
    return drawn.astype(np.int32)


def check_enough_candidates(n: int, anchor_set: "AnchorSet") -> None:
    """Raises ValueError if an anchor has fewer than `n` candidates that may be its negatives."""
    (row, most), total = anchor_set.most_excluded, anchor_set.candidates
    if total - most >= n:
        return
    if anchor_set.anchor == "query":
        anchor = f"query {anchor_set.split.queries.ids[row]}"
    else:
        anchor = f"the document of row {row}"
    plural = PLURALS[anchor_set.candidate]
    raise SettingError(
        f"num_negatives={n} negatives, but {anchor} has only {total - most}: {most} of the {total} {plural} "
        "are its positives or have their text. Lower num_negatives."
    )
