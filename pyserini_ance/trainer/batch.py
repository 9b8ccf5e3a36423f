"""The rows of a training batch: a pure function of data, settings, seed, stage, step and adopted tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pyserini_ance.data.known_positives import SIDES, KnownPositives, Side
from pyserini_ance.negatives.table import PADDING, NegativeTable, fill_random, promoted_in
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.stage import Stage

if TYPE_CHECKING:  # a draw needs no collection and no model
    from pyserini_ance.data.prepared import AnchorSet
    from pyserini_ance.data.scored_pairs import ScoredPairs


@dataclass(frozen=True)
class TermRows:
    """Rows that a term contrasts: anchors (B,) of side `anchor`, positives (B, P) and negatives (B, n).

    PADDING marks an empty entry. With live candidates, all of them, positives included, are in `negatives`.
    `teacher` (B, P + n) float32 are a teacher's scores of the positives, then of the negatives; NaN for a
    candidate that no table holds. None without a teacher.
    """

    anchor: Side
    anchors: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray
    teacher: np.ndarray | None = None

    @property
    def candidate(self) -> Side:
        return "document" if self.anchor == "query" else "query"

    def part(self, part: slice) -> "TermRows":
        teacher = None if self.teacher is None else self.teacher[part]
        return TermRows(self.anchor, self.anchors[part], self.positives[part], self.negatives[part], teacher)


@dataclass(frozen=True)
class Batch:
    """The rows of a batch's queries (B,), and the rows that each term contrasts, one line per query."""

    queries: np.ndarray
    terms: dict[str, TermRows]

    def positions(self, side: Side, rows: np.ndarray) -> np.ndarray:
        """Return the positions of `rows` in `unique[side]`; PADDING maps to 0 and must be masked."""
        unique = self.unique[side]
        return np.searchsorted(unique, np.where(rows == PADDING, unique[0], rows))

    def chunks(self, size: int) -> list["Batch"]:
        """Split the batch into chunks of `size` queries."""
        parts = [slice(start, start + size) for start in range(0, len(self.queries), size)]
        return [
            Batch(self.queries[part], {name: term.part(part) for name, term in self.terms.items()})
            for part in parts
        ]

    @cached_property
    def unique(self) -> dict[Side, np.ndarray]:
        """The rows (U,) of each side, ascending; a text is encoded once even if several terms use it."""
        drawn: dict[Side, list[np.ndarray]] = {side: [] for side in SIDES}
        for rows in self.terms.values():
            drawn[rows.anchor].append(rows.anchors)
            drawn[rows.candidate] += [rows.positives.ravel(), rows.negatives.ravel()]
        unique = {side: np.unique(np.concatenate(rows)) for side, rows in drawn.items()}
        return {side: rows[rows != PADDING] for side, rows in unique.items()}


def anchor_sets_of(
    anchor_sets: "Mapping[Side, AnchorSet]", tables: Collection[NegativeTable], rows: np.ndarray
) -> "Mapping[Side, AnchorSet]":
    """Return the anchor sets of the steps that draw from `tables`: with the pairs that these promote, and
    with the queries that all of them were mined for; of the queries `rows` (n,) alone.

    Promoted pairs are positives in draws, in random negatives and in the masks of pools alike. With
    `query_chunks`, tables hold the anchors of a chunk of the queries; with `min_candidates`, those that have
    so many candidates.
    """
    # Differs from microsoft/ANCE: it reads a new file from the beginning; here the endless permutation
    # continues over the queries mined now, unless `refresh: {restart_queries: true}`.
    pairs = promoted_in(tables)
    sets = {side: of_side.with_positives(pairs) for side, of_side in anchor_sets.items()}
    queries, known_positives = sets["query"].anchors, sets["query"].known_positives
    queries = np.intersect1d(queries, rows, assume_unique=True)
    for table in tables:
        # Equally many may be others, where each of two tables has promoted the positives of a query.
        if np.array_equal(table.anchors, sets[table.anchor_side].anchors):
            continue
        if table.anchor_side == "query":
            queries = np.intersect1d(queries, table.anchors, assume_unique=True)
        else:  # all positives of the query, since any of them may be drawn
            own = known_positives.subset(queries)
            is_mined = np.isin(own.rows, table.anchors)
            queries = queries[np.logical_and.reduceat(is_mined, own.offsets[:-1])]
    if len(queries) < len(sets["query"].anchors):
        sets["query"] = replace(sets["query"], drawn=queries)
    return sets


def plan_batch(
    stage: Stage,
    stage_index: int,
    step: int,
    seed: int,
    anchor_sets: "Mapping[Side, AnchorSet]",
    tables: Mapping[tuple[str, int], NegativeTable],
    teacher_scores: "Mapping[str, ScoredPairs] | None" = None,
    adopted_step: int = 0,
) -> Batch:
    """Draw the batch of step `step`.

    `anchor_sets` are those of `anchor_sets_of` for the same `tables`, which hold the adopted table of each
    mined source by (term, position in the term). `teacher_scores` holds the adopted scores of each term with
    a teacher. `adopted_step` is the step before which the tables were adopted; it matters for
    `refresh: {restart_queries: true}` alone.
    """
    of_queries = anchor_sets["query"]
    drawn_from = of_queries.anchors if of_queries.drawn is None else of_queries.drawn
    queries, turns = _queries_of_step(drawn_from, stage, step, adopted_step, (seed, stage_index))
    known_positives = of_queries.known_positives
    rng = random_stream("positives", seed, stage_index, step, 0)
    positives = _positives(known_positives, queries, stage.positives, rng)
    terms: dict[str, TermRows] = {}
    for index, (name, term) in enumerate(stage.terms.items(), start=1):
        anchors, others = queries, positives
        if term.anchor == "document":
            anchors, others = positives[:, 0], queries[:, None]
        if term.distilled_side == term.anchor:  # no other text is compared
            others = others[:, :0]
        drawn = []
        for position, source in enumerate(term.negatives):
            anchor_set, table = anchor_sets[term.anchor], tables.get((name, position))
            if table is not None and anchor_set.judged is not None:
                # Without candidates that another table promoted to positives of these anchors.
                table = table.excluding(anchors, anchor_set)
            rng = random_stream("negatives", seed, stage_index, step, index, position)
            if getattr(source, "rolling", False) and table is not None:
                key = (seed, stage_index, index, position)
                rolled = table.draw_in_turn(anchors, turns, source.num_negatives, key)
                drawn.append(fill_random(rolled, anchors, anchor_set, rng))
            else:
                drawn.append(source.draw(anchors, table, anchor_set, rng))
        negatives = np.concatenate(drawn, axis=1) if drawn else np.empty((len(queries), 0), np.int32)
        terms[name] = TermRows(term.anchor, anchors, others, negatives)
    terms = {name: terms[stage.drawing_term(name)] for name in terms}
    for name, scores in (teacher_scores or {}).items():
        rows = terms[name]
        candidates = np.concatenate([rows.positives, rows.negatives], axis=1)
        terms[name] = replace(rows, teacher=scores.of(rows.anchors[:, None], candidates))
    return Batch(queries, terms)


def _queries_of_step(
    queries: np.ndarray, stage: Stage, step: int, adopted_step: int, key: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return (B,) of the rows `queries`, those of step `step` in an endless sequence: one permutation of
    `queries` per epoch; and (B,) the number of earlier occurrences of each in the sequence.

    Each query occurs `repeats_per_query` times in a row. `key` is the seed and the stage's number.
    """
    purpose = "queries"
    if stage.effective_refresh.restart_queries:
        purpose = "queries since an adoption"
        step -= adopted_step
        key = (*key, adopted_step)
    if not len(queries):
        cure = "lower min_candidates of a source, or add splits to the stage's train_split"
        raise SettingError(f"no training query has candidates in every table; {cure}")
    count, total = stage.batch_queries, len(queries)
    numbers = np.arange(step * count, (step + 1) * count)
    positions = numbers // stage.repeats_per_query
    rows = np.empty(count, np.int32)
    for epoch in np.unique(positions // total):
        inside = positions // total == epoch
        order = _epoch_order(total, purpose, *key, int(epoch))
        rows[inside] = queries[order[positions[inside] % total]]
    return rows, positions // total * stage.repeats_per_query + numbers % stage.repeats_per_query


# A permutation of 502,939 queries takes as long as 14 ms on one core, at every step without the cache. A step
# reads those of two epochs at most.
@lru_cache(maxsize=2)
def _epoch_order(total: int, purpose: str, seed: int, *numbers: int) -> np.ndarray:
    """(total,) int32: an epoch's order of `total` queries; not to be written to."""
    return random_stream(purpose, seed, *numbers).permutation(total).astype(np.int32)


def _positives(
    known_positives: KnownPositives, queries: np.ndarray, choice: str, rng: np.random.Generator
) -> np.ndarray:
    """Return document rows (B, 1), or with choice `all` (B, P), filled with PADDING."""
    starts = known_positives.offsets[queries]
    counts = known_positives.offsets[queries + 1] - starts
    if choice in ("first", "last"):  # with `last` no other is known
        return known_positives.rows[starts][:, None]
    if choice == "random":
        return known_positives.rows[starts + rng.integers(0, counts)][:, None]
    columns = np.arange(counts.max())
    mask = columns < counts[:, None]
    return np.where(mask, known_positives.rows[np.where(mask, starts[:, None] + columns, 0)], PADDING)
