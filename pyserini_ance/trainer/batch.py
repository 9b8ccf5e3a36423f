"""Batch: the rows of one step. A pure function of data, settings, seed, stage, step and the adopted tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyserini_ance.data.collection import SIDES, Relation, Side
from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.stage import Stage


@dataclass(frozen=True)
class TermRows:
    """What a term contrasts: anchors (B,) rows of `anchor`; positives (B, P) and negatives (B, n) rows of the other side, PADDING
    where there is none. Where candidates were found live, all of them, positives too, stand among `negatives`.
    """

    anchor: Side
    anchors: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray

    @property
    def candidate(self) -> Side:
        return "document" if self.anchor == "query" else "query"

    def of(self, side: Side) -> list[np.ndarray]:
        return [self.anchors] if side == self.anchor else [self.positives, self.negatives]

    def part(self, part: slice) -> "TermRows":
        return TermRows(self.anchor, self.anchors[part], self.positives[part], self.negatives[part])


@dataclass(frozen=True)
class Batch:
    """queries (B,) rows, and by term what it contrasts, one row for each of them."""

    queries: np.ndarray
    terms: dict[str, TermRows]

    def unique(self, side: Side) -> np.ndarray:
        """(U,) rows, ascending: each text is encoded once however many terms use it."""
        return self._unique[side]

    def positions(self, side: Side, rows: np.ndarray) -> np.ndarray:
        """Positions of `rows` in `unique(side)`; PADDING maps to 0 and must be masked."""
        unique = self._unique[side]
        return np.searchsorted(unique, np.where(rows == PADDING, unique[0], rows))

    def chunks(self, size: int | None) -> list["Batch"]:
        """The batch in parts of `size` queries."""
        size = size or len(self.queries)
        return [self._part(slice(start, start + size)) for start in range(0, len(self.queries), size)]

    def _part(self, part: slice) -> "Batch":
        return Batch(self.queries[part], {name: term.part(part) for name, term in self.terms.items()})

    @cached_property
    def _unique(self) -> dict[Side, np.ndarray]:
        rows = {side: np.unique(np.concatenate([r.ravel() for t in self.terms.values() for r in t.of(side)])) for side in SIDES}
        return {side: of_side[of_side != PADDING] for side, of_side in rows.items()}


def plan_batch(
    stage: Stage,
    stage_index: int,
    step: int,
    seed: int,
    directions: Mapping[Side, Direction],
    tables: Mapping[tuple[str, int], NegativeTable],
    parts: Sequence[slice] = (),
) -> Batch:
    """Draw step `step`'s batch. `tables` holds the adopted table of each mined source by (term, position in the term).

    `parts`: rows of queries, of each of which as many are drawn; none: of all queries together.
    """
    queries = _queries_of_step(_mined_queries(directions, tables.values()), parts, stage, step, (seed, stage_index))
    positives = _positives(directions["query"].relation, queries, stage.positives, _generator(seed, stage_index, step, 0))
    terms = {}
    for index, (name, term) in enumerate(stage.terms.items(), start=1):
        anchors, others = (queries, positives) if term.anchor == "query" else (positives[:, 0], queries[:, None])
        drawn = [
            source.draw(anchors, tables.get((name, position)), directions[term.anchor], _generator(seed, stage_index, step, index, position))
            for position, source in enumerate(term.negatives)
        ]
        negatives = np.concatenate(drawn, axis=1) if drawn else np.empty((len(queries), 0), np.int32)
        terms[name] = TermRows(term.anchor, anchors, others, negatives)
    return Batch(queries, terms)


def _generator(seed: int, *key: int) -> np.random.Generator:
    # As entropy, (seed, stage, step) and (seed, stage, step, 0) would be one stream: numpy pads entropy with zeros.
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _mined_queries(directions: Mapping[Side, Direction], tables: Iterable[NegativeTable]) -> np.ndarray:
    """(Q,) rows, ascending: the queries for which every table has the anchors. Tables of a refresh in chunks have them for a part."""
    # Differs from microsoft/ANCE: there a new file is read from its beginning, in its order; here the endless permutation goes on with
    # what is mined now, because a draw depends on the step and not on when something was adopted.
    queries, relation = directions["query"].anchors, directions["query"].relation
    for table in tables:
        if len(table.anchors) == len(directions[table.anchor_side].anchors):
            continue
        if table.anchor_side == "query":
            queries = np.intersect1d(queries, table.anchors, assume_unique=True)
        else:  # whichever of its positives is drawn
            has_all = np.logical_and.reduceat(np.isin(relation.rows, table.anchors), relation.offsets[:-1])
            queries = queries[has_all[queries]]
    return queries


def _queries_of_step(queries: np.ndarray, parts: Sequence[slice], stage: Stage, step: int, key: tuple[int, int]) -> np.ndarray:
    """(B,) of the rows `queries`, ascending: as many of each of `parts`, one part after the other."""
    if not parts:
        return _drawn(queries, stage.batch_queries, stage.in_a_row, step, key, ())
    share, inside = stage.batch_queries // len(parts), [queries[slice(*np.searchsorted(queries, (part.start, part.stop)))] for part in parts]
    # (seed, stage, epoch, part, 0, 0): longer than any other key, so that no other stream is like it
    return np.concatenate([_drawn(part, share, stage.in_a_row, step, key, (number, 0, 0)) for number, part in enumerate(inside)])


def _drawn(queries: np.ndarray, count: int, in_a_row: int, step: int, key: tuple[int, int], part: tuple[int, ...]) -> np.ndarray:
    """Positions step * count ... of the endless concatenation of one permutation of `queries` an epoch, each of them `in_a_row` times."""
    places, total = np.arange(step * count, (step + 1) * count) // in_a_row, len(queries)
    rows = np.empty(count, np.int32)
    for epoch in np.unique(places // total):
        inside = places // total == epoch
        rows[inside] = queries[_generator(*key, int(epoch), *part).permutation(total)[places[inside] % total]]
    return rows


def _positives(relation: Relation, queries: np.ndarray, choice: str, rng: np.random.Generator) -> np.ndarray:
    """(B, 1) document rows, or (B, most) with PADDING for `all`."""
    starts, counts = relation.offsets[queries], relation.offsets[queries + 1] - relation.offsets[queries]
    if choice == "first":
        return relation.rows[starts][:, None]
    if choice == "random":
        return relation.rows[starts + rng.integers(0, counts)][:, None]
    columns = np.arange(counts.max())
    inside = columns < counts[:, None]
    return np.where(inside, relation.rows[np.where(inside, starts[:, None] + columns, 0)], PADDING)
