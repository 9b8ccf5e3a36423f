"""Batches of texts by length, under a budget of padded tokens, which removes nearly all padding."""

import numpy as np
import torch

from pyserini_ance.encoders.hardware import Precision, processor

# Tokens in a batch unless a recipe says otherwise. On a CPU more of them do not fit its cache, and hold more
# padding: 8,192 made encoding 1.2 to 1.8 times and training 2.7 times as slow on an Intel Xeon.
TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 32_768}  # an H200 encodes half as fast with 8,192

# Tokens that one more batch costs on a CPU: operators are called, and in training gradients added, once more.
# In fp32, splits made a training step 1.15 times as fast, on an EPYC of Zen 4 and a Xeon with AMX.
BATCH_COST_TOKENS = {"encoding": 32, "training": 128}


def length_sorted_batches(
    lengths: np.ndarray,
    tokens_per_batch: int,
    texts_per_batch: int | None = None,
    batch_cost_tokens: int | None = None,
) -> list[np.ndarray]:
    """Split the positions 0..N-1 of `lengths` (N,) into batches, longest texts first.

    A batch has at most `tokens_per_batch` padded tokens (or one text), and at most `texts_per_batch` texts.
    It is split where that saves more than `batch_cost_tokens` of padding (None: never). The first batch shows
    the peak of memory.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        count = max(1, tokens_per_batch // max(1, int(lengths[order[start]])))
        count = min(count, texts_per_batch or count)
        batches.append(order[start : start + count])
        start += count
    if batch_cost_tokens is None:
        return batches
    return [part for batch in batches for part in _without_padding(batch, lengths, batch_cost_tokens)]


def _without_padding(batch: np.ndarray, lengths: np.ndarray, cost_tokens: int) -> list[np.ndarray]:
    """Split a batch, longest texts first, as long as a cut saves more than `cost_tokens` of padding."""
    longest_first = lengths[batch].astype(np.int64)
    saved = np.arange(len(batch), 0, -1) * (longest_first[0] - longest_first)  # by a cut before each text
    cut = int(saved.argmax())
    if saved[cut] <= cost_tokens:
        return [batch]
    parts = (batch[:cut], batch[cut:])
    return [split for part in parts for split in _without_padding(part, lengths, cost_tokens)]


def encoding_batches(
    lengths: np.ndarray, setting: int | None, device: torch.device | str, precision: Precision
) -> list[np.ndarray]:
    """The batches of texts that are encoded: `length_sorted_batches` as they are fast on `device`.

    setting: `encoding.tokens_per_batch`. With AMX, products in bf16 are so fast that no split pays.
    """
    is_split = torch.device(device).type == "cpu" and (precision == "fp32" or bool(processor().amd_family))
    cost = BATCH_COST_TOKENS["encoding"] if is_split else None
    return length_sorted_batches(lengths, tokens_at_once(setting, device), batch_cost_tokens=cost)


def training_batches(
    lengths: np.ndarray, setting: int | None, device: torch.device | str, texts_per_batch: int | None = None
) -> list[np.ndarray]:
    """The batches of a step's texts of one side: `length_sorted_batches` as they are fast on `device`.

    setting: `encoding.tokens_per_batch`.
    """
    cost = BATCH_COST_TOKENS["training"] if torch.device(device).type == "cpu" else None
    return length_sorted_batches(lengths, tokens_at_once(setting, device), texts_per_batch, cost)


def tokens_at_once(setting: int | None, device: torch.device | str) -> int:
    """`setting`, or None's: the number of tokens in a batch that is fast on `device`."""
    return setting or TOKENS_PER_BATCH.get(torch.device(device).type, TOKENS_PER_BATCH["cuda"])
