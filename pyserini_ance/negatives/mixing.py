"""Tables made of tables: samples, several in one, and one without repeats. What is kept keeps its order and its origin."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pyserini_ance.data.passages import repeats
from pyserini_ance.negatives.guards import keep
from pyserini_ance.negatives.table import PADDING, NegativeTable, Origin

MOST_ORIGINS = 256


def sample(table: NegativeTable, n: int, rng: np.random.Generator) -> NegativeTable:
    """`n` candidates of each anchor, uniform without replacement; all where there are fewer."""
    there = table.candidates != PADDING
    keys = np.where(there, rng.random(there.shape, np.float32), np.inf)
    chosen = np.zeros(there.shape, bool)
    np.put_along_axis(chosen, np.argsort(keys, axis=1, kind="stable")[:, :n], True, axis=1)
    return _kept(table, chosen & there, n)


def concatenate(tables: Sequence[NegativeTable], source: str, dropped: dict[str, int]) -> NegativeTable:
    """All candidates of each anchor, table after table, as often as they stand there: one table of `source`.

    The tables are over the same anchors, and their origins are spelt out.
    """
    first = tables[0]
    assert all(np.array_equal(table.anchors, first.anchors) for table in tables), "tables of other anchors cannot be mixed"
    origins = tuple(dict.fromkeys(origin for table in tables for origin in table.origins))
    _refuse_too_many(origins)
    origin = np.concatenate([_renumbered(table, origins) for table in tables], axis=1)
    candidates = np.concatenate([table.candidates for table in tables], axis=1)
    scores = np.concatenate([table.scores for table in tables], axis=1)
    whole = NegativeTable(first.anchor_side, first.candidate_side, first.anchors, candidates, scores, source, dropped, origins, origin)
    return _kept(whole, candidates != PADDING, int(whole.counts.max(initial=0)))


def without_repeats(table: NegativeTable) -> NegativeTable:
    """Each candidate of an anchor once, where it stands first; how many were dropped is under `duplicates`."""
    there = table.candidates != PADDING
    repeated = there & repeats(table.candidates)
    kept = _kept(table, there & ~repeated, table.candidates.shape[1])
    return replace(kept, dropped={**table.dropped, "duplicates": int(repeated.sum())})


def _kept(table: NegativeTable, kept: np.ndarray, width: int) -> NegativeTable:
    """The candidates where `kept` (A, n) is true, at most `width` of them, in order, padded at the end."""
    arrays = {"candidates": np.int32(PADDING), "scores": np.float32(-np.inf), "origin": np.uint8(0)}
    kept_arrays = keep(kept, width, *((getattr(table, name), padding) for name, padding in arrays.items()))
    return replace(table, **dict(zip(arrays, kept_arrays, strict=True)))


def _renumbered(table: NegativeTable, origins: tuple[Origin, ...]) -> np.ndarray:
    return np.array([origins.index(origin) for origin in table.origins], np.uint8)[table.origin]


def _refuse_too_many(origins: Sequence[Origin]) -> None:
    if len(origins) > MOST_ORIGINS:
        raise ValueError(f"candidates of {len(origins)} origins in one table; at most {MOST_ORIGINS}. Begin a stage without momentum.")
