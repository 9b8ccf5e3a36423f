"""Guards against false negatives: candidates that must not be used, taken out of a table's rows."""

import numpy as np

from pyserini_ance.data.collection import Qrels
from pyserini_ance.negatives.table import PADDING


def known_positive(qrels: Qrels, query_rows: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """(B, n) bool: is documents[i, j] a known positive of query_rows[i]? documents (B, n) rows, PADDING is none."""
    starts, stops = qrels.relevant_offsets[query_rows], qrels.relevant_offsets[query_rows + 1]
    width = int((stops - starts).max(initial=0))
    columns = starts[:, None] + np.arange(width)
    inside = columns < stops[:, None]
    base = int(max(documents.max(initial=0), qrels.relevant_rows.max(initial=0))) + 1
    anchor = np.arange(len(query_rows))[:, None]
    positives = (anchor * base + qrels.relevant_rows[np.where(inside, columns, 0)])[inside]
    return np.isin(anchor * base + documents, positives) & (documents != PADDING)


def keep(candidates: np.ndarray, scores: np.ndarray, kept: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `width` candidates of each row where `kept` (A, n) is true, in order, padded at the end."""
    order = np.argsort(~kept, axis=1, kind="stable")[:, :width]
    kept = np.take_along_axis(kept, order, 1)
    candidates = np.where(kept, np.take_along_axis(candidates, order, 1), PADDING).astype(np.int32)
    return candidates, np.where(kept, np.take_along_axis(scores, order, 1), -np.inf).astype(np.float32)
