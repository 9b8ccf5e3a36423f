"""The vectors of a refresh that encodes some of the documents and corrects older ones of the others."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.negatives.mined import SearchedSource
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import CorrectedEncoding
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import ENCODED, RefreshRequest, base_before
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import save_array
from pyserini_ance.storage.publish import read_manifest
from pyserini_ance.vectors.correction import ROWS_PER_BLOCK, Correction, agreement, token_means
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.vector_store import Store, VectorStore, read_vectors, stores_of

log = logging.getLogger(__name__)
ENCODED_AT = "encoded_at.npy"  # (N,) int: the step whose weights encoded each document last
HELD_OUT = 0.2  # of the encoded documents, to measure a map that is fitted on the rest
PROBE_QUERIES = 500


def correct_older(
    request: RefreshRequest, snapshot: Snapshot, recipe: Recipe, run: RunDir, lease: Callable[[Path], bool]
) -> dict[str, Any]:
    """Correct the stage's older vectors for the mining of `request`, and return how that went; {} if the
    recipe does not want it, or if there are none. `lease` keeps a folder from being removed."""
    stage, world = recipe.stages[request.stage], snapshot.world
    if (encode := stage.effective_refresh.encode) is None:
        return {}
    step = world.on_main(lambda: base_before(run, request.stage, request.step, encode))
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
    generation = run.generation(request.stage, step)
    encoded = world.on_main(lambda: read_manifest(generation, verify=False)[ENCODED])
    if encoded.get("corrected"):
        stores = _stores(base, snapshot.encoder.dimension, encoded.get("processes", world.size))
        if not world.on_main(lambda: all(path.is_dir() for path, *_ in stores)):
            lacks = f"{_folder(base)} lacks the vectors of step {step}"
            log.warning(f"{request.describe()}: {lacks}: all documents are encoded")
            return {}
        old = ShardedVectors([read_vectors(*store) for store in stores])
        encoded_at = np.load(_folder(base) / ENCODED_AT)
    else:
        old = base.document_vectors
        encoded_at = np.full(len(old), step)
    del base  # and its encoder
    top_k = max(source.top_k_of(snapshot.anchor_set("query")) for source in searched)
    key = recipe.seed, list(recipe.stages).index(request.stage), request.step
    measured = correct_vectors(snapshot, old, encode, top_k, key, encoded_at)
    if not measured["corrected"]:
        log.warning(
            f"{request.describe()}: corrected vectors have recall {measured['recall']:.3f}, less than "
            f"min_recall {encode.min_recall:g}: all documents are encoded"
        )
    share = encode.model_dump(include={"sample", "part"}, exclude_none=True)
    about = {"base": step, "base_weights": checkpoint.weights, "processes": world.size}
    return {**measured, **about, **share}


def correct_vectors(
    snapshot: Snapshot,
    old: ShardedVectors,
    encode: CorrectedEncoding,
    top_k: int,
    key: tuple[int, ...],
    encoded_at: np.ndarray,
) -> dict[str, Any]:
    """Set `snapshot.corrected` from the `old` vectors (N, D) of all documents; return what was measured.

    The oldest documents are encoded, by the steps `encoded_at` (N,), and of the others a random fifth of the
    share, to measure: recall among the oldest alone is not that of all ages (0.68 for 0.77 at step 900 of the
    demo, a tenth encoded). Below `encode.min_recall` nothing is set: all documents are to be encoded. top_k:
    how many documents sources retrieve; of the few documents that are held out, as large a share is compared.
    key: of the random choices, with the refresh's step at its end. Called by all processes, which fit the
    same map.
    """
    world, encoder, tokens = snapshot.world, snapshot.encoder, snapshot.data.documents
    normalizes, documents = encoder.towers.documents.normalizes, len(old)
    rng, count = random_stream("corrected vectors", *key), max(2, round(encode.share * documents))
    held, order = max(1, round(HELD_OUT * count)), rng.permutation(documents)
    oldest, others = np.split(order[np.argsort(encoded_at[order], kind="stable")], [count - held])
    rows = np.concatenate([rng.choice(others, held, replace=False), oldest])
    with snapshot.timed("encode_documents"):
        new = snapshot.encode_some(encoder, tokens, rows, "document", "sampled documents")
    queries = rng.permutation(len(snapshot.query_vectors))[:PROBE_QUERIES]
    with snapshot.timed("correct"):
        fitted = np.concatenate([old[rows], token_means(encoder, tokens, rows)], axis=1)
        found = Correction.fit(fitted[held:], new[held:], normalizes)(fitted[:held])
        exact = round(encode.share * held)  # as in the ranking that is mined
        found[:exact] = new[:exact]
        k = min(max(1, round(top_k * held / documents)), held)
        probe = snapshot.query_vectors[np.sort(queries)]
        recall, correlation = world.on_main(lambda: agreement(probe, new[:held], found, k))
        measured = {"recall": round(recall, 4), "rank_correlation": round(correlation, 4)}
        if recall < encode.min_recall:
            return {"documents": count + documents, "corrected": False, **measured}
        encoded_at = encoded_at.copy()
        encoded_at[rows] = key[-1]
        correct = Correction.fit(fitted, new, normalizes)
        snapshot.corrected = _store(snapshot, old, correct, rows, new, encoded_at)
    ages = key[-1] - encoded_at
    measured |= {"mean_age_steps": round(float(ages.mean()), 1), "max_age_steps": int(ages.max())}
    return {"documents": count, "corrected": True, **measured}


def _folder(snapshot: Snapshot) -> Path:
    return snapshot.vectors_folder / "corrected"


def _stores(snapshot: Snapshot, dimension: int, size: int) -> list[Store]:
    """The stores of a snapshot's corrected vectors, which `size` processes and no server write."""
    documents = len(snapshot.data.documents)
    bounds = [documents * rank // size for rank in range(size + 1)]
    key = {name: value for name, value in snapshot.vectors_key.items() if name != "server"}
    return stores_of(_folder(snapshot), bounds, dimension, key)


def _store(
    snapshot: Snapshot,
    old: ShardedVectors,
    correct: Correction,
    rows: np.ndarray,
    new: np.ndarray,
    encoded_at: np.ndarray,
) -> ShardedVectors:
    """The vectors of all documents on disk: `new` (R, D) of `rows` (R,), and corrected ones. Each process
    writes its shard; files of an attempt that was killed are written again."""
    world, encoder, tokens = snapshot.world, snapshot.encoder, snapshot.data.documents
    stores = _stores(snapshot, old.shape[1], world.size)
    _, size, _, key = stores[world.rank]
    store = VectorStore(*stores[world.rank])
    for start in range(0, size, ROWS_PER_BLOCK):
        block = np.arange(start, min(start + ROWS_PER_BLOCK, size)) + key["first"]
        vectors = correct(np.concatenate([old[block], token_means(encoder, tokens, block)], axis=1))
        places = rows - block[0]
        inside = (places >= 0) & (places < len(block))
        vectors[places[inside]] = new[inside]
        store.write(start, vectors)
    world.on_main(lambda: save_array(_folder(snapshot) / ENCODED_AT, encoded_at))
    world.barrier()
    return ShardedVectors([read_vectors(*one) for one in stores], world.rank)
