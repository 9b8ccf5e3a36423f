"""The dev measure of a checkpoint, on all or on sampled queries and documents."""

from collections.abc import Sequence

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.measures.evaluate import evaluate
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.measure import parse
from pyserini_ance.recipe.products import Evaluate

DEPTH = 100


def evaluate_on_dev(snapshot: Snapshot, settings: Evaluate, seed: int) -> dict[str, float]:
    """The measure of the checkpoint over `settings.queries` of each split, against `settings.sample_documents` documents; by split.

    A sample, one for all splits, always holds every judged document of their queries; it makes the task easier, so that values
    from different samples must not be compared. Called by all processes of the snapshot's world.
    """
    splits = [snapshot.collection.split(name) for name in settings.split]
    rng = np.random.default_rng(seed)
    asked = [(split, _sample(len(split.queries), settings.queries, rng)) for split in splits]
    documents = _sampled_documents(asked, len(snapshot.collection.documents), settings.sample_documents, rng)
    every = (snapshot.document_vectors, snapshot.passages) if documents is None else None
    vectors, passages = every or snapshot.encode_documents(documents)
    (measure,) = parse([settings.measure])
    depth = max(DEPTH, int(measure.params.get("cutoff") or 0))
    queries = np.concatenate([snapshot.encode_queries(split.name, rows) for split, rows in asked])
    scores, found = snapshot.rank(queries, vectors, depth, passages)
    found = found if documents is None else documents[found]
    ends = np.cumsum([len(rows) for _, rows in asked])[:-1]
    of_splits = list(zip(asked, np.split(found, ends), np.split(scores, ends), strict=True))
    return snapshot.world.once(lambda: {one[0].name: _value(snapshot.collection, *one, f, s, measure) for one, f, s in of_splits})


def _value(collection: Collection, split: Split, rows: np.ndarray, found: np.ndarray, scores: np.ndarray, measure: Measure) -> float:
    run, qrels = as_run(collection, split, rows, found, scores), as_qrels(collection, split, rows)
    return evaluate(qrels, run, [measure])[str(measure)]


def as_run(collection: Collection, split: Split, rows: np.ndarray, found: np.ndarray, scores: np.ndarray) -> dict[str, dict[str, float]]:
    ids = collection.documents.ids
    return {
        split.queries.ids[row]: {ids[document]: float(score) for document, score in zip(found[i], scores[i], strict=True)}
        for i, row in enumerate(rows)
    }


def as_qrels(collection: Collection, split: Split, rows: np.ndarray) -> dict[str, dict[str, int]]:
    ids = collection.documents.ids
    return {
        split.queries.ids[row]: {ids[document]: int(grade) for document, grade in zip(*split.qrels.judged(row), strict=True)}
        for row in rows
    }


def _sample(total: int, wanted: int | None, rng: np.random.Generator) -> np.ndarray:
    if wanted is None or wanted >= total:
        return np.arange(total)
    return np.sort(rng.choice(total, wanted, replace=False))


def _sampled_documents(
    asked: Sequence[tuple[Split, np.ndarray]], total: int, wanted: int | None, rng: np.random.Generator
) -> np.ndarray | None:
    """What is judged for the queries `asked`, rows of splits, and others up to `wanted`; None: all."""
    if wanted is None or wanted >= total:
        return None
    judged = np.unique(np.concatenate([split.qrels.judged(row)[0] for split, rows in asked for row in rows]))
    others = np.setdiff1d(np.arange(total), judged)
    filling = rng.choice(others, max(0, min(len(others), wanted - len(judged))), replace=False)
    return np.sort(np.concatenate([judged, filling]))
