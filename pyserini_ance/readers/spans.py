"""Spans: the best start and end of an answer among the tokens of a text."""

import numpy as np


def best_span(starts: np.ndarray, ends: np.ndarray, longest: int) -> tuple[int, int, float]:
    """First and last token, and the sum of their logits (T,), of the best span of at most `longest` tokens; the first of equal ones.

    Sums are float32, as the logits are.
    """
    sums = starts[:, None] + ends[None, :]
    lengths = 1 + np.arange(len(ends))[None, :] - np.arange(len(starts))[:, None]
    sums = np.where((lengths >= 1) & (lengths <= longest), sums, -np.inf)
    start, end = np.unravel_index(np.argmax(sums), sums.shape)
    return int(start), int(end), float(sums[start, end])
