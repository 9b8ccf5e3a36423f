"""The vectors of a refresh that encodes a sample of the documents and corrects older ones of the others."""

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.negatives.mined import SearchedSource
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import CorrectedEncoding
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import RefreshRequest, base_before
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.vectors.correction import ROWS_PER_BLOCK, Correction, agreement
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.vector_store import VectorStore, read_vectors

log = logging.getLogger(__name__)
HELD_OUT = 0.2  # of the sample, to measure a map that is fitted on the rest
PROBE_QUERIES = 500


def correct_older(
    request: RefreshRequest, snapshot: Snapshot, recipe: Recipe, run: RunDir, lease: Callable[[Path], bool]
) -> dict[str, Any]:
    """Correct the stage's older vectors for the mining of `request`, and return how that went; {} if the
    recipe does not want it, or if there are none. `lease` keeps a folder from being removed."""
    stage, world = recipe.stages[request.stage], snapshot.world
    if (encode := stage.effective_refresh.encode) is None:
        return {}
    step = world.on_main(lambda: base_before(run, request.stage, request.step))
    searched = [
        source
        for term in stage.terms.values()
        for source in (term.components if term.anchor == "query" else ())
        if isinstance(source, SearchedSource)
    ]
    if step is None or not searched:
        return {}
    folder = run.checkpoint(request.stage, step)
    lease(folder)
    checkpoint = Checkpoint(folder, *world.on_main(lambda: Checkpoint.open(folder).hashes))
    base = Snapshot.of(checkpoint, snapshot.data, recipe, run, world)
    lease(base.vectors_folder)
    old = base.document_vectors
    del base  # and its encoder
    top_k = max(source.top_k_of(snapshot.anchor_set("query")) for source in searched)
    key = recipe.seed, list(recipe.stages).index(request.stage), request.step
    measured = correct_vectors(snapshot, old, encode, top_k, key)
    if not measured["corrected"]:
        log.warning(
            f"{request.describe()}: corrected vectors have recall {measured['recall']:.3f}, less than "
            f"min_recall {encode.min_recall:g}: all documents are encoded"
        )
    return {**measured, "base": step, "base_weights": checkpoint.weights, "sample": encode.sample}


def correct_vectors(
    snapshot: Snapshot, old: ShardedVectors, encode: CorrectedEncoding, top_k: int, key: tuple[int, ...]
) -> dict[str, Any]:
    """Set `snapshot.corrected` from the `old` vectors (N, D) of all documents; return what was measured.

    Below `encode.min_recall` nothing is set: all documents are to be encoded. top_k: how many documents
    sources retrieve; of the few documents that are held out, as large a share is compared. key: of the random
    choices. Called by all processes, which fit the same map.
    """
    world, normalizes = snapshot.world, snapshot.encoder.towers.documents.normalizes
    documents, rng = len(old), random_stream("corrected vectors", *key)
    rows = rng.permutation(rng.choice(documents, max(2, round(encode.sample * documents)), replace=False))
    with snapshot.timed("encode_documents"):
        tokens = snapshot.data.documents
        new = snapshot.encode_some(snapshot.encoder, tokens, rows, "document", "sampled documents")
    queries = rng.permutation(len(snapshot.query_vectors))[:PROBE_QUERIES]
    with snapshot.timed("correct"):
        fitted = old[rows]
        held = max(1, round(HELD_OUT * len(rows)))
        found = Correction.fit(fitted[held:], new[held:], normalizes)(fitted[:held])
        exact = round(encode.sample * held)  # as in the ranking that is mined
        found[:exact] = new[:exact]
        k = min(max(1, round(top_k * held / documents)), held)
        probe = snapshot.query_vectors[np.sort(queries)]
        recall, correlation = world.on_main(lambda: agreement(probe, new[:held], found, k))
        measured = {"recall": round(recall, 4), "rank_correlation": round(correlation, 4)}
        corrected = recall >= encode.min_recall
        if corrected:
            correct = Correction.fit(fitted, new, normalizes)
            snapshot.corrected = _store(snapshot, old, correct, rows, new)
    return {"documents": len(rows) + (0 if corrected else documents), "corrected": corrected, **measured}


def _store(
    snapshot: Snapshot, old: ShardedVectors, correct: Correction, rows: np.ndarray, new: np.ndarray
) -> ShardedVectors:
    """The vectors of all documents on disk: `new` (R, D) of `rows` (R,), and corrected ones. Each process
    writes its shard; files of an attempt that was killed are written again."""
    world, dimension = snapshot.world, old.shape[1]
    firsts = np.cumsum([0, *map(len, old.shards)])
    stores = [
        (
            snapshot.vectors_folder / "corrected" / f"{rank}-of-{world.size}",
            len(shard),
            dimension,
            {**snapshot.vectors_key, "first": int(firsts[rank])},
        )
        for rank, shard in enumerate(old.shards)
    ]
    with closing(VectorStore(*stores[world.rank])) as store:
        for start in range(0, len(old.own), ROWS_PER_BLOCK):
            block = correct(old.own[start : start + ROWS_PER_BLOCK])
            places = rows - old.first - start
            inside = (places >= 0) & (places < len(block))
            block[places[inside]] = new[inside]
            store.write(start, block)
    world.barrier()
    return ShardedVectors([read_vectors(*one) for one in stores], world.rank)
