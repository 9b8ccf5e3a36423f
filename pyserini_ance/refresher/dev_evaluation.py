"""The dev score of a checkpoint, on all or on sampled queries and documents."""

from collections.abc import Sequence

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.refresh_settings import Evaluate
from pyserini_ance.vectors.encoding import ShardedVectors

MIN_TOP_K = 100


def evaluate_on_dev(snapshot: Snapshot, settings: Evaluate, seed: int) -> dict[str, float]:
    """Return the measure of the checkpoint by split, over `settings.queries` of each.

    The documents searched are `settings.sample_documents`, one sample for all splits that always holds every
    judged document of their queries. A sample makes the task easier: values of different samples must not be
    compared. All processes of the snapshot's world call this.
    """
    splits = [snapshot.collection.split(name) for name in settings.split]
    rng = random_stream("dev sample", seed)
    sampled = []
    for split in splits:
        rows = np.arange(len(split.queries))
        if settings.queries is not None and settings.queries < len(rows):
            rows = np.sort(rng.choice(len(rows), settings.queries, replace=False))
        sampled.append((split, rows))
    total = len(snapshot.collection.documents)
    documents = _sample_documents(sampled, total, settings.sample_documents, rng)
    vectors: ShardedVectors | np.ndarray
    if documents is None:
        vectors, passages = snapshot.document_vectors, snapshot.passages
    else:
        vectors, passages = snapshot.encode_documents(documents)
    (measure,) = parse_measures([settings.measure])
    top_k = max(MIN_TOP_K, int(measure.params.get("cutoff") or 0))
    queries = np.concatenate([snapshot.encode_queries(split.name, rows) for split, rows in sampled])
    scores, hits = snapshot.rank(queries, vectors, top_k, passages)
    if documents is not None:
        hits = documents[hits]
    ends = np.cumsum([len(rows) for _, rows in sampled])[:-1]
    results = list(zip(sampled, np.split(hits, ends), np.split(scores, ends), strict=True))

    def values() -> dict[str, float]:
        return {
            split.name: evaluate(
                as_qrels(snapshot.collection, split, rows),
                as_run(snapshot.collection, split, rows, split_hits, split_scores),
                [measure],
            )[str(measure)]
            for (split, rows), split_hits, split_scores in results
        }

    return snapshot.world.on_main(values)


def as_run(
    collection: Collection, split: Split, rows: np.ndarray, hits: np.ndarray, scores: np.ndarray
) -> dict[str, dict[str, float]]:
    """Return {query id: {document id: score}} for query `rows` (Q,), from document rows `hits` and `scores`
    (Q, k)."""
    ids = collection.documents.ids
    return {
        split.queries.ids[row]: {
            ids[document]: float(score) for document, score in zip(hits[i], scores[i], strict=True)
        }
        for i, row in enumerate(rows)
    }


def as_qrels(collection: Collection, split: Split, rows: np.ndarray) -> dict[str, dict[str, int]]:
    """Return {query id: {document id: grade}} for query `rows` (Q,)."""
    ids = collection.documents.ids
    return {
        split.queries.ids[row]: {
            ids[document]: int(grade) for document, grade in zip(*split.qrels.judged(row), strict=True)
        }
        for row in rows
    }


def _sample_documents(
    sampled: Sequence[tuple[Split, np.ndarray]], total: int, size: int | None, rng: np.random.Generator
) -> np.ndarray | None:
    """Return the documents judged for the `sampled` queries (split, rows), filled up to `size`; None: all
    documents."""
    if size is None or size >= total:
        return None
    judged = np.unique(
        np.concatenate([split.qrels.judged(row)[0] for split, rows in sampled for row in rows])
    )
    others = np.setdiff1d(np.arange(total), judged)
    filling = rng.choice(others, max(0, min(len(others), size - len(judged))), replace=False)
    return np.sort(np.concatenate([judged, filling]))
