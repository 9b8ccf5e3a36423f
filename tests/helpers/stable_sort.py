"""The slow reference of every exact search: a stable sort of all scores."""

import numpy as np


def best_by_stable_sort(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best scores (Q, k) and rows (Q, k) of `scores` (Q, N); of equal scores the lower row is first."""
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, 1), rows
