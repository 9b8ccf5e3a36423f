"""Positives in rankings: the rank and the margin of an anchor's own, and new ones for queries without any."""

import numpy as np

from pyserini_ance.data.answer_matching import FIELD, Tokens, contain_answers, read_answers
from pyserini_ance.data.trec import PADDING
from pyserini_ance.negatives.snapshot import Snapshot


def positive_ranks(is_positive: np.ndarray) -> np.ndarray:
    """(A,) int32: the rank, from 1, of the first positive of each ranking (A, k) bool; 0 if it has none."""
    return np.where(is_positive.any(1), is_positive.argmax(1) + 1, 0).astype(np.int32)


def margins(positive_scores: np.ndarray, candidates: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(A,) float32: the score of each anchor's best positive minus the mean score of its candidates.

    candidates, scores: (A, n), PADDING at missing candidates. NaN without candidates, or without a score of a
    positive.
    """
    present = candidates != PADDING
    counts = present.sum(1)
    means = np.where(present, scores, 0.0).sum(1) / np.maximum(counts, 1)
    return np.where(counts > 0, positive_scores - means, np.nan).astype(np.float32)


def find_positives(snapshot: Snapshot, top_k: int | None) -> np.ndarray:
    """(P, 2) int32, ascending: training queries without a positive, each with a document that answers it.

    The document is the first of the `top_k` retrieved that contains one of the query's answers. A query
    without one is left out, as is every query if `top_k` is None. All processes make the call, and each
    searches for a share of the queries.
    Source: the code of ANCE-Tele for OpenQA (OpenMatch/ANCE-Tele, preprocess/build_train_em_hn.py).
    """
    split, world = snapshot.split, snapshot.world
    unjudged = np.flatnonzero(split.known_positives("query").counts == 0).astype(np.int32)
    if top_k is None or not len(unjudged):
        return np.empty((0, 2), np.int32)
    texts = snapshot.collection.documents.columns[FIELD]
    own = np.array_split(unjudged, world.size)[world.rank]
    ranked = snapshot.search("query", own, "document", top_k)[1]
    answers = {row: Tokens(read_answers(split.queries, row)) for row in own.tolist()}
    first = np.full(len(own), PADDING, np.int32)
    for documents in ranked.T:
        missing = np.flatnonzero(first == PADDING)
        missing = missing[np.argsort(documents[missing], kind="stable")]
        found = missing[contain_answers(answers, texts.__getitem__, own[missing], documents[missing])]
        first[found] = documents[found]
    pairs = np.stack([own, first], axis=1)
    return world.gather_rows(pairs[first != PADDING])
