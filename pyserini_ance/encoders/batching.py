"""Batches of similar length under a budget of padded tokens: sorting removes nearly all padding."""

import numpy as np


def length_sorted_batches(lengths: np.ndarray, tokens_per_batch: int, texts_per_batch: int | None = None) -> list[np.ndarray]:
    """Positions 0..N-1 in batches, longest texts first, each of at most `tokens_per_batch` padded tokens (or one text),
    and of at most `texts_per_batch` texts.

    Longest first, so that the first batch shows the peak of memory.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        count = max(1, tokens_per_batch // max(1, int(lengths[order[start]])))
        count = min(count, texts_per_batch or count)
        batches.append(order[start : start + count])
        start += count
    return batches
