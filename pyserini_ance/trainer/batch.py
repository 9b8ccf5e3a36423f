"""Batch: the rows of one step. A pure function of data, settings, seed, stage, step and the adopted tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.models import Stage


@dataclass(frozen=True)
class Batch:
    """queries (B,) rows; positives (B, P) and negatives[term] (B, n) document rows, PADDING where there is none."""

    queries: np.ndarray
    positives: np.ndarray
    negatives: dict[str, np.ndarray]

    @cached_property
    def unique_queries(self) -> np.ndarray:
        return np.unique(self.queries)

    @cached_property
    def unique_documents(self) -> np.ndarray:
        """(U,) rows, ascending: each text is encoded once however many terms use it."""
        rows = np.unique(np.concatenate([self.positives.ravel(), *(n.ravel() for n in self.negatives.values())]))
        return rows[rows != PADDING]

    def query_positions(self) -> np.ndarray:
        """(B,) positions in `unique_queries`."""
        return np.searchsorted(self.unique_queries, self.queries)

    def document_positions(self, rows: np.ndarray) -> np.ndarray:
        """Positions of `rows` in `unique_documents`; PADDING maps to 0 and must be masked."""
        return np.searchsorted(self.unique_documents, np.where(rows == PADDING, self.unique_documents[0], rows))

    def chunks(self, size: int | None) -> list["Batch"]:
        """The batch in parts of `size` queries."""
        size = size or len(self.queries)
        return [self._part(slice(start, start + size)) for start in range(0, len(self.queries), size)]

    def _part(self, part: slice) -> "Batch":
        return Batch(self.queries[part], self.positives[part], {term: rows[part] for term, rows in self.negatives.items()})


def plan_batch(
    stage: Stage, stage_index: int, step: int, seed: int, split: Split, documents: int, tables: Mapping[tuple[str, int], NegativeTable]
) -> Batch:
    """Draw step `step`'s batch. `tables` holds the adopted table of each mined source by (term, position in the term)."""
    queries = _queries_of_step(len(split.queries), stage.batch_queries, step, (seed, stage_index))
    positives = _positives(split.qrels, queries, stage.positives, _generator(seed, stage_index, step, 0))
    negatives = {}
    for index, (name, term) in enumerate(stage.terms.items(), start=1):
        drawn = [
            source.draw(queries, tables.get((name, position)), split, documents, _generator(seed, stage_index, step, index, position))
            for position, source in enumerate(term.negatives)
        ]
        negatives[name] = np.concatenate(drawn, axis=1) if drawn else np.empty((len(queries), 0), np.int32)
    return Batch(queries, positives, negatives)


def _generator(seed: int, *key: int) -> np.random.Generator:
    # As entropy, (seed, stage, step) and (seed, stage, step, 0) would be one stream: numpy pads entropy with zeros.
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _queries_of_step(queries: int, batch: int, step: int, key: tuple[int, int]) -> np.ndarray:
    """Positions step * batch ... of the endless concatenation of one permutation an epoch."""
    places = np.arange(step * batch, (step + 1) * batch)
    rows = np.empty(batch, np.int32)
    for epoch in np.unique(places // queries):
        inside = places // queries == epoch
        rows[inside] = _generator(*key, int(epoch)).permutation(queries)[places[inside] % queries]
    return rows


def _positives(qrels: Qrels, queries: np.ndarray, choice: str, rng: np.random.Generator) -> np.ndarray:
    """(B, 1) document rows, or (B, most) with PADDING for `all`."""
    starts, counts = qrels.relevant_offsets[queries], np.diff(qrels.relevant_offsets)[queries]
    if choice == "first":
        return qrels.relevant_rows[starts][:, None]
    if choice == "random":
        return qrels.relevant_rows[starts + rng.integers(0, counts)][:, None]
    columns = np.arange(counts.max())
    inside = columns < counts[:, None]
    return np.where(inside, qrels.relevant_rows[np.where(inside, starts[:, None] + columns, 0)], PADDING)
