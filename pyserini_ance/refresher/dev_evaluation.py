"""The dev score of a checkpoint, on all or on sampled documents."""

from typing import Any

import numpy as np

from pyserini_ance.data.known_positives import PADDING
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.refresh_settings import Evaluate
from pyserini_ance.vectors.encoding import ShardedVectors

MIN_TOP_K = 100


def evaluate_on_dev(
    snapshot: Snapshot, settings: Evaluate, seed: int, from_all: bool = False
) -> dict[str, float]:
    """Return the measure of the checkpoint by split.

    The documents searched are `settings.sample_documents`, one sample for all splits that always holds every
    judged document of their queries. A sample makes the task easier: values of different samples must not be
    compared. from_all: the sample's vectors are those of an encoding of all documents. All processes of the
    snapshot's world call this.
    """
    collection, sample = snapshot.collection, settings.sample_documents
    splits, total = [collection.split(name) for name in settings.split], len(collection.documents)
    documents: np.ndarray | None = None  # all
    vectors: ShardedVectors | np.ndarray
    if sample is None or sample >= total:
        vectors, passages = snapshot.document_vectors, snapshot.passages
    else:
        judged = np.unique(np.concatenate([split.qrels.rows for split in splits]))
        others = np.setdiff1d(np.arange(total), judged)
        rng, filling = random_stream("dev sample", seed), max(0, min(len(others), sample - len(judged)))
        documents = np.sort(np.concatenate([judged, rng.choice(others, filling, replace=False)]))
        vectors, passages = snapshot.encode_documents(documents, from_all)
    (measure,) = parse_measures([settings.measure])
    top_k = max(MIN_TOP_K, int(measure.params.get("cutoff") or 0))
    queries = [snapshot.encode_queries(split.name, np.arange(len(split.queries))) for split in splits]
    # (Q,) the row among `documents` that each query's ranking leaves out, or PADDING.
    own = None
    if collection.ignore_identical_ids:
        of_splits = [collection.own_documents(split) for split in splits]
        own = np.concatenate([of_split for of_split in of_splits if of_split is not None])
        if documents is not None:
            places = np.searchsorted(documents, own).clip(max=len(documents) - 1)
            own = np.where(documents[places] == own, places, PADDING)
    scores, hits = snapshot.rank(np.concatenate(queries), vectors, top_k, passages, own=own)
    if documents is not None:
        hits = np.where(hits == PADDING, PADDING, documents[hits])
    ranked, ids = iter(zip(hits, scores, strict=True)), collection.documents.ids

    def named(rows: np.ndarray, values: np.ndarray) -> dict[str, Any]:
        pairs = zip(rows.tolist(), values.tolist(), strict=True)
        return {ids[row]: value for row, value in pairs if row != PADDING}

    def values() -> dict[str, float]:
        found = {}
        for split in splits:
            qrels = {name: named(*split.qrels.judged(row)) for row, name in enumerate(split.queries.ids)}
            run = {name: named(*next(ranked)) for name in qrels}
            found[split.name] = evaluate(qrels, run, [measure])[str(measure)]
        return found

    return snapshot.world.on_main(values)
