"""Correct the vectors of an older encoder: a map to the newer one's, fitted on texts that both have encoded.

Source: corrector networks, Monath et al. 2024, arXiv:2409.01890.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats
from torch.nn import functional

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.encoder import Encoder, to_device

# Of a ridge, in units of the mean eigenvalue; the greatest first.
PENALTIES = 10.0 ** np.arange(2, -4.5, -0.5)
ROWS_PER_BLOCK, QUERIES_PER_BLOCK = 8192, 50


@dataclass(frozen=True, eq=False)
class Correction:
    """A linear map of inputs, by `matrix` (I, D) and `bias` (D,) float32; `normalizes`: to length 1.

    An input has the D numbers of an old vector, and I - D others of the same text, such as `token_means`.

    Differs from Monath et al., who train a network of one hidden layer: from the two-layer MiniLM to its
    weights 100 steps of ANCE later, 10 % of 4,987 documents recover 0.60 of the top 200 by either, and the
    network takes longer to fit than all documents to encode.
    """

    matrix: np.ndarray
    bias: np.ndarray
    normalizes: bool

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Corrected vectors (R, D) float32 of inputs (R, I)."""
        corrected = inputs @ self.matrix + self.bias
        if self.normalizes:
            corrected /= np.linalg.norm(corrected, axis=1, keepdims=True)
        return corrected

    @classmethod
    def fit(cls, inputs: np.ndarray, new: np.ndarray, normalizes: bool) -> "Correction":
        """The map by ridge regression from `inputs` (R, I) to the vectors `new` (R, D) float32 of the texts.

        What is penalised is the difference to the old vectors: without data these stay as they are. The other
        numbers are scaled to the variance of the old vectors. The penalty is that of PENALTIES with the least
        generalised cross-validation (Golub, Heath and Wahba 1979), without those that leave more than R / 2
        degrees of freedom, which it cannot judge.
        """
        (rows, size), dimension = inputs.shape, new.shape[1]
        center = inputs.mean(0, np.float64)
        shift = new.mean(0, np.float64) - center[:dimension]
        gram, product, total = np.zeros((size, size)), np.zeros((size, dimension)), 0.0
        for start in range(0, rows, ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            x = inputs[block] - center
            y = new[block] - inputs[block, :dimension] - shift
            gram, product, total = gram + x.T @ x, product + x.T @ y, total + np.square(y).sum()
        weights, variances = np.ones(size), np.diag(gram)
        if size > dimension and (others := variances[dimension:].mean()) > 0:
            weights[dimension:] = np.sqrt(variances[:dimension].mean() / others)
        gram, product = gram * np.outer(weights, weights), product * weights[:, None]
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
        change = weights[:, None] * (vectors @ (rotated / (values + penalty)[:, None]))
        bias = shift - center @ change
        return cls((np.eye(size, dimension) + change).astype(np.float32), bias.astype(np.float32), normalizes)


def token_means(encoder: Encoder, tokens: TokenStore, rows: np.ndarray) -> np.ndarray:
    """(R, E) float32: the mean of the embeddings of the tokens of each of the documents `rows` (R,), before
    any layer. E is 0 without layers: then a vector is such a mean, and as fast to compute."""
    if (transformer := encoder.towers.documents.transformer) is None:
        return np.empty((len(rows), 0), np.float32)
    embeddings = transformer.get_input_embeddings().weight.detach()
    means = np.empty((len(rows), embeddings.shape[1]), np.float32)
    for start in range(0, len(rows), ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        ids, mask = tokens.batch(rows[block], encoder.length_tokens("document"))
        lengths = mask.sum(1)
        bags = to_device(encoder.device, ids[mask.astype(bool)], lengths.cumsum() - lengths)
        means[block] = functional.embedding_bag(bags[0], embeddings, bags[1], mode="mean").float().cpu()
    return means


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
