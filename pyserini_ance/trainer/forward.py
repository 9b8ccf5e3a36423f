"""Encoding a batch's texts with gradients: each text once, on one process, in length-sorted chunks, with reproducible dropout.

Every process sees the vectors of all processes and computes the whole loss; into the towers it passes back the gradient
of the vectors that it encoded itself. The sum over processes is the gradient of the loss: nothing is averaged.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch

from pyserini_ance.data.collection import Side
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.batching import length_sorted_batches
from pyserini_ance.encoders.two_tower import TwoTower
from pyserini_ance.trainer.deal import Deal
from pyserini_ance.trainer.randomness import dropout_of

LossOf = Callable[..., torch.Tensor]  # of the vectors of each side that is encoded


@dataclass(frozen=True)
class SideInput:
    """Texts of one side to encode: rows (U,) of a token store, at most `texts_per_chunk` at a time."""

    side: Side
    tokens: TokenStore
    rows: np.ndarray
    length_tokens: int
    texts_per_chunk: int | None = None

    def lengths(self) -> np.ndarray:
        return self.tokens.lengths(self.length_tokens, self.rows)


@dataclass(frozen=True)
class Forward:
    """How chunks of texts are run through the towers; `key` is where in training this is (seed, stage, step, ...)."""

    towers: TwoTower
    autocast: Callable[[], AbstractContextManager]
    tokens_per_batch: int
    device: torch.device
    key: tuple
    world: World

    def vectors(self, side: SideInput) -> torch.Tensor:
        """(U, D) float32 with gradients, in the order of `side.rows`; U may be 0."""
        chunks = self._chunks(side)
        if not chunks:
            return torch.empty(0, self.towers.queries.dimension, device=self.device)
        parts = [self._run(side, number, chunk) for number, chunk in enumerate(chunks)]
        return torch.cat(parts)[torch.from_numpy(np.argsort(np.concatenate(chunks))).to(self.device)]

    def backward(self, side: SideInput, gradients: torch.Tensor) -> None:
        """Encode again, chunk by chunk with the same dropout, and pass `gradients` (U, D) back."""
        for number, chunk in enumerate(self._chunks(side)):
            self._run(side, number, chunk).backward(gradients[torch.from_numpy(chunk).to(self.device)])

    def _chunks(self, side: SideInput) -> list[np.ndarray]:
        return length_sorted_batches(side.lengths(), self.tokens_per_batch, side.texts_per_chunk)

    def _run(self, side: SideInput, number: int, chunk: np.ndarray) -> torch.Tensor:
        ids, mask = (torch.from_numpy(x).to(self.device) for x in side.tokens.batch(side.rows[chunk], side.length_tokens))
        with dropout_of(*self.key, number, side.side, rank=self.world.rank), self.autocast():
            return self.towers(side.side, ids, mask).float()


def plain_backward(forward: Forward, sides: list[SideInput], loss_of: LossOf) -> None:
    """Accumulate in the towers what this process's texts add to the gradients of `loss_of(*vectors of each side)`."""
    deals = [Deal(side.lengths(), forward.world) for side in sides]
    vectors = [forward.vectors(own) for own in _own(sides, deals)]
    # Where this process has no text, or the tower is frozen, there is no graph, and where a side has no part in the loss no gradient.
    pairs = [(v, g) for v, g in zip(vectors, _gradients(deals, vectors, loss_of), strict=True) if v.requires_grad and g is not None]
    torch.autograd.backward([v for v, _ in pairs], [g for _, g in pairs])


def cached_backward(forward: Forward, sides: list[SideInput], loss_of: LossOf) -> None:
    """`plain_backward` with only one chunk's activations in memory: GradCache (Gao et al. 2021, arXiv:2101.06983)."""
    deals = [Deal(side.lengths(), forward.world) for side in sides]
    own = _own(sides, deals)
    with torch.no_grad():
        vectors = [forward.vectors(side) for side in own]
    for side, gradient in zip(own, _gradients(deals, vectors, loss_of), strict=True):
        if gradient is not None and forward.towers.trains(side.side):
            forward.backward(side, gradient)


def _own(sides: list[SideInput], deals: list[Deal]) -> list[SideInput]:
    return [replace(side, rows=side.rows[deal.own]) for side, deal in zip(sides, deals, strict=True)]


def _gradients(deals: list[Deal], vectors: list[torch.Tensor], loss_of: LossOf) -> list[torch.Tensor | None]:
    """Of the whole loss with respect to this process's vectors; None for a side that has no part in it."""
    leaves = [deal.gather(own).requires_grad_() for deal, own in zip(deals, vectors, strict=True)]
    loss_of(*leaves).backward()
    return [None if leaf.grad is None else deal.part(leaf.grad) for deal, leaf in zip(deals, leaves, strict=True)]
