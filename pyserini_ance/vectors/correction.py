"""Correct the vectors of an older encoder: a map to the newer one's, fitted on texts that both have encoded.

Source: corrector networks, Monath et al. 2024, arXiv:2409.01890.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

# Of a ridge, in units of the mean eigenvalue; the greatest first.
PENALTIES = 10.0 ** np.arange(2, -4.5, -0.5)
ROWS_PER_BLOCK, QUERIES_PER_BLOCK = 8192, 50


@dataclass(frozen=True, eq=False)
class Correction:
    """A linear map of vectors, by `matrix` (D, D) and `bias` (D,) float32; `normalizes`: to length 1.

    Differs from Monath et al., who train a network of one hidden layer: from the two-layer MiniLM to its
    weights 100 steps of ANCE later, 10 % of 4,987 documents recover 0.60 of the top 200 by either, and the
    network takes longer to fit than all documents to encode.
    """

    matrix: np.ndarray
    bias: np.ndarray
    normalizes: bool

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Corrected vectors (R, D) float32 of old ones (R, D)."""
        corrected = vectors @ self.matrix + self.bias
        if self.normalizes:
            corrected /= np.linalg.norm(corrected, axis=1, keepdims=True)
        return corrected

    @classmethod
    def fit(cls, old: np.ndarray, new: np.ndarray, normalizes: bool) -> "Correction":
        """The map by ridge regression from `old` (R, D) to `new` (R, D) float32, vectors of the same texts.

        What is penalised is the difference to the identity: without data vectors stay as they are. The
        penalty is that of PENALTIES with the least generalised cross-validation (Golub, Heath and Wahba
        1979), without those that leave more than R / 2 degrees of freedom, which it cannot judge.
        """
        rows, size = old.shape
        center, shift = old.mean(0, np.float64), new.mean(0, np.float64) - old.mean(0, np.float64)
        gram, product, total = np.zeros((size, size)), np.zeros((size, size)), 0.0
        for start in range(0, rows, ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            x = old[block] - center
            y = new[block] - old[block] - shift
            gram, product, total = gram + x.T @ x, product + x.T @ y, total + np.square(y).sum()
        values, vectors = np.linalg.eigh(gram)
        values = np.maximum(values, 0)
        rotated = vectors.T @ product
        energy = np.square(rotated).sum(1)

        def risk(penalty: float) -> float:
            freedom = (values / (values + penalty)).sum()
            if freedom > rows / 2:
                return np.inf
            left = total - (energy * (values + 2 * penalty) / (values + penalty) ** 2).sum()
            return float(left / (rows - 1 - freedom) ** 2) if rows > 1 + freedom else np.inf

        scale = max(values.mean(), np.finfo(np.float32).tiny)
        penalty = min((float(scale * one) for one in PENALTIES), key=risk)
        change = vectors @ (rotated / (values + penalty)[:, None])
        bias = shift - center @ change
        return cls((np.eye(size) + change).astype(np.float32), bias.astype(np.float32), normalizes)


def agreement(queries: np.ndarray, exact: np.ndarray, other: np.ndarray, k: int) -> tuple[float, float]:
    """How well vectors `other` (N, D) rank N texts for `queries` (Q, D), as means over the queries: recall of
    the top k by the `exact` vectors (N, D), and the rank correlation (Spearman) over all texts."""
    recalls, correlations = [], []
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        block = queries[start : start + QUERIES_PER_BLOCK]
        scores = [block @ vectors.T for vectors in (exact, other)]
        tops = [np.argpartition(-one, k - 1, axis=1)[:, :k] for one in scores]
        recalls += [len(np.intersect1d(*pair)) / k for pair in zip(*tops, strict=True)]
        ranks = [stats.rankdata(one, axis=1) - (len(exact) + 1) / 2 for one in scores]
        spread = np.sqrt(np.square(ranks[0]).sum(1) * np.square(ranks[1]).sum(1))
        correlations += ((ranks[0] * ranks[1]).sum(1) / np.maximum(spread, 1e-9)).tolist()
    return float(np.mean(recalls)), float(np.mean(correlations))
