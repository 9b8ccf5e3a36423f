"""Encoding a batch's texts with gradients: each text once, in length-sorted chunks, with reproducible dropout.

`cached_backward` is GradCache (Gao et al. 2021, arXiv:2101.06983): exact gradients of a loss over all
vectors of a step, with only one chunk's activations in memory.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.batching import length_sorted_batches
from pyserini_ance.encoders.tokenization import Side
from pyserini_ance.encoders.two_tower import TwoTower
from pyserini_ance.trainer.randomness import dropout_of


@dataclass(frozen=True)
class SideInput:
    """Texts of one side to encode: rows (U,) of a token store, at most `texts_per_chunk` at a time."""

    side: Side
    tokens: TokenStore
    rows: np.ndarray
    length_tokens: int
    texts_per_chunk: int | None = None


@dataclass(frozen=True)
class Forward:
    """How chunks of texts are run through the towers; `key` is where in training this is (seed, stage, step, ...)."""

    towers: TwoTower
    autocast: Callable[[], AbstractContextManager]
    tokens_per_batch: int
    device: torch.device
    key: tuple

    def vectors(self, side: SideInput) -> torch.Tensor:
        """(U, D) float32 with gradients, in the order of `side.rows`."""
        chunks = self._chunks(side)
        parts = [self._run(side, number, chunk) for number, chunk in enumerate(chunks)]
        return torch.cat(parts)[torch.from_numpy(np.argsort(np.concatenate(chunks))).to(self.device)]

    def backward(self, side: SideInput, gradients: torch.Tensor) -> None:
        """Encode again, chunk by chunk with the same dropout, and pass `gradients` (U, D) back."""
        for number, chunk in enumerate(self._chunks(side)):
            self._run(side, number, chunk).backward(gradients[torch.from_numpy(chunk).to(self.device)])

    def _chunks(self, side: SideInput) -> list[np.ndarray]:
        return length_sorted_batches(side.tokens.lengths(side.length_tokens, side.rows), self.tokens_per_batch, side.texts_per_chunk)

    def _run(self, side: SideInput, number: int, chunk: np.ndarray) -> torch.Tensor:
        ids, mask = (torch.from_numpy(x).to(self.device) for x in side.tokens.batch(side.rows[chunk], side.length_tokens))
        with dropout_of(*self.key, number, side.side), self.autocast():
            return self.towers(side.side, ids, mask).float()


def cached_backward(forward: Forward, sides: list[SideInput], loss_of: Callable[..., torch.Tensor]) -> None:
    """Accumulate the gradients of `loss_of(*vectors of each side)` into the towers' parameters."""
    with torch.no_grad():
        vectors = [forward.vectors(side).requires_grad_() for side in sides]
    loss_of(*vectors).backward()
    for side, leaf in zip(sides, vectors, strict=True):
        forward.backward(side, leaf.grad)
