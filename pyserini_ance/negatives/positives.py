"""Where an anchor's positives are in the ranking that its negatives are mined from: their rank and margin."""

import numpy as np

from pyserini_ance.data.collection import is_known_positive
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.trec import PADDING


def positive_ranks(anchor_set: AnchorSet, rows: np.ndarray) -> np.ndarray:
    """(A,) int32: the rank, from 1, of each anchor's best known positive in its ranking `rows` (A, k).

    0 if the ranking has none.
    """
    hits = is_known_positive(anchor_set.known_positives, anchor_set.anchors, rows)
    return np.where(hits.any(1), hits.argmax(1) + 1, 0).astype(np.int32)


def margins(positive_scores: np.ndarray, candidates: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(A,) float32: the score of each anchor's best positive minus the mean score of its candidates.

    candidates, scores: (A, n), PADDING at missing candidates. NaN without candidates, or without a score of a
    positive.
    """
    present = candidates != PADDING
    counts = present.sum(1)
    means = np.where(present, scores, 0.0).sum(1) / np.maximum(counts, 1)
    return np.where(counts > 0, positive_scores - means, np.nan).astype(np.float32)
