"""Exact search of vectors that a caller passes; those of this package are finite and of one dimension."""

from numbers import Integral
from typing import Any

import numpy as np

from pyserini_ance.vectors.search import exact_search


def search_given(queries: Any, documents: Any, k: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    """`exact_search` after checks, which read each vector once.

    Raises ValueError for a k below 1, other shapes than (Q, D) and (N, D), and, naming the row, for NaN and
    infinite values: they have no rank, and documents that they are compared with would be missing.
    """
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k is {k!r}; expected a whole number from 1")
    queries, documents = _matrix("query_vectors", queries), _matrix("document_vectors", documents)
    if queries.shape[1] != documents.shape[1]:
        raise ValueError(
            f"query_vectors have {queries.shape[1]} dimensions, document_vectors {documents.shape[1]}; "
            "encode both with one encoder"
        )
    scores, rows = exact_search(queries, documents, int(k), device=device)
    if len(infinite := np.flatnonzero(~np.isfinite(scores).all(1))):
        raise ValueError(
            f"query_vectors: row {infinite[0]} has scores beyond the range of float32; scale the vectors down"
        )
    return scores, rows


def _matrix(name: str, vectors: Any) -> np.ndarray:
    """(N, D) float32, without a copy if it is that already; it may be a memory map."""
    matrix = np.asarray(vectors, np.float32)
    if matrix.ndim != 2:
        raise ValueError(f"{name} has the shape {matrix.shape}; expected two dimensions, a row for each text")
    # A product with ones reads each value once, with all cores; sums of finite values may overflow.
    with np.errstate(invalid="ignore", over="ignore"):
        suspects = np.flatnonzero(~np.isfinite(matrix @ np.ones(matrix.shape[1], np.float32)))
    for row in suspects.tolist():
        if not (finite := np.isfinite(matrix[row])).all():
            column = int(np.argmin(finite))
            raise ValueError(
                f"{name}: row {row} is {matrix[row, column]} in dimension {column}; expected finite numbers; "
                "remove the row, or encode its text again"
            )
    return matrix
