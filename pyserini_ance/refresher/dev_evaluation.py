"""The dev score of a checkpoint, on all or on sampled queries and documents."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.refresh_settings import Evaluate
from pyserini_ance.vectors.encoding import ShardedVectors

MIN_TOP_K = 100


def evaluate_on_dev(
    snapshot: Snapshot, settings: Evaluate, seed: int, from_all: bool = False
) -> dict[str, float]:
    """Return the measure of the checkpoint by split, over `settings.queries` of each.

    The documents searched are `settings.sample_documents`, one sample for all splits that always holds every
    judged document of their queries. A sample makes the task easier: values of different samples must not be
    compared. from_all: the sample's vectors are those of an encoding of all documents. All processes of the
    snapshot's world call this.
    """
    rng = random_stream("dev sample", seed)
    sampled = []
    for split in map(snapshot.collection.split, settings.split):
        rows = np.arange(len(split.queries))
        if settings.queries is not None and settings.queries < len(rows):
            rows = np.sort(rng.choice(len(rows), settings.queries, replace=False))
        sampled.append((split, rows))
    documents = _sample_documents(sampled, len(snapshot.collection.documents), settings.sample_documents, rng)
    vectors: ShardedVectors | np.ndarray
    if documents is None:
        vectors, passages = snapshot.document_vectors, snapshot.passages
    else:
        vectors, passages = snapshot.encode_documents(documents, from_all)
    (measure,) = parse_measures([settings.measure])
    top_k = max(MIN_TOP_K, int(measure.params.get("cutoff") or 0))
    queries = np.concatenate([snapshot.encode_queries(split.name, rows) for split, rows in sampled])
    own = _own_documents(snapshot.collection, sampled, documents)
    scores, hits = snapshot.rank(queries, vectors, top_k, passages, own=own)
    if documents is not None:
        hits = np.where(hits == PADDING, PADDING, documents[hits])
    ranked = iter(zip(hits, scores, strict=True))
    ids = snapshot.collection.documents.ids

    def named(rows: np.ndarray, values: np.ndarray) -> dict[str, Any]:
        pairs = zip(rows.tolist(), values.tolist(), strict=True)
        return {ids[row]: value for row, value in pairs if row != PADDING}

    def values() -> dict[str, float]:
        found = {}
        for split, rows in sampled:
            asked = {split.queries.ids[row]: row for row in rows.tolist()}
            qrels = {name: named(*split.qrels.judged(row)) for name, row in asked.items()}
            run = {name: named(*next(ranked)) for name in asked}
            found[split.name] = evaluate(qrels, run, [measure])[str(measure)]
        return found

    return snapshot.world.on_main(values)


def _own_documents(
    collection: Collection, sampled: Sequence[tuple[Split, np.ndarray]], documents: np.ndarray | None
) -> np.ndarray | None:
    """(Q,) the row among `documents`, None: all, that each query's ranking leaves out, or PADDING."""
    if not collection.ignore_identical_ids:
        return None
    of_splits = [collection.own_documents(split, rows) for split, rows in sampled]
    own = np.concatenate([of_split for of_split in of_splits if of_split is not None])
    if documents is None:
        return own
    places = np.searchsorted(documents, own).clip(max=len(documents) - 1)
    return np.where(documents[places] == own, places, PADDING)


def _sample_documents(
    sampled: Sequence[tuple[Split, np.ndarray]], total: int, size: int | None, rng: np.random.Generator
) -> np.ndarray | None:
    """Return the documents judged for the `sampled` queries (split, rows), filled up to `size`; None: all
    documents."""
    if size is None or size >= total:
        return None
    of_queries = [split.qrels.judged(row)[0] for split, rows in sampled for row in rows]
    judged = np.unique(np.concatenate(of_queries))
    others = np.setdiff1d(np.arange(total), judged)
    filling = rng.choice(others, max(0, min(len(others), size - len(judged))), replace=False)
    return np.sort(np.concatenate([judged, filling]))
