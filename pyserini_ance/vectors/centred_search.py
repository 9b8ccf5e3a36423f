"""Exact search with products in bf16: candidates are scored again in fp32, and a bound proves each ranking.

The mean of the documents is subtracted before rounding. It shifts all scores of a query alike, so that ranks
stay, and the rest is shorter: encoders such as ANCE give vectors with a large common part, whose rounding
errors would exceed the differences between documents.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

import torch

from pyserini_ance.vectors.topk import DeviceTopK, ScoresAndRows

log = logging.getLogger(__name__)
RESCORED_BYTES = 1 << 28  # of document vectors that are gathered at once
# Errors of sums of D products, as multiples of D and of the product of two lengths. fp32 sums have 2^-24;
# a tensor core truncates where others round.
BF16_SUM_ERROR, FP32_SUM_ERROR = 2.0**-21, 2.0**-24


class Candidates(NamedTuple):
    """Searched queries (Q, D) and their best documents by bf16: scores (Q, M) and rows (Q, M), best first."""

    queries: torch.Tensor
    scores: torch.Tensor
    rows: torch.Tensor


class CentredSearch:
    """The k best of `documents` (N, D) for blocks of queries (Q, D), all float32 on one device.

    First `update` with all blocks of documents, then `result`. The host waits for nothing.
    """

    def __init__(self, documents: torch.Tensor, query_blocks: Iterable[torch.Tensor], k: int):
        self.documents, self.k = documents, k
        self.mean = documents.mean(0)
        self.blocks = list(query_blocks)
        self._rounded = [block.bfloat16().T.contiguous() for block in self.blocks]
        kept = min(len(documents), candidates_of(k))
        self._best = [DeviceTopK(len(block), kept, documents.device) for block in self.blocks]
        # Largest over the documents: length, length after centring and rounding, and error of rounding.
        self._largest = documents.new_zeros(3)

    def update(self, first: int, stop: int) -> Iterable[None]:
        """Score the documents from row `first` to `stop`; yields after each block of queries."""
        documents = self.documents[first:stop]
        centred = documents - self.mean
        rounded = centred.bfloat16()
        lengths = [
            documents.norm(dim=1),
            rounded.float().norm(dim=1),
            (rounded.float() - centred).norm(dim=1),
        ]
        self._largest = self._largest.maximum(torch.stack([each.max() for each in lengths]))
        for queries, best in zip(self._rounded, self._best, strict=True):
            best.update(_product(rounded, queries), first)
            yield

    def result(self) -> tuple[ScoresAndRows, torch.Tensor]:
        """Scores (Q, k) float32 and rows (Q, k) int32 of all queries, and whether each is proven (Q,)."""
        parts = [
            self._rescore(Candidates(queries, *best.result()))
            for queries, best in zip(self.blocks, self._best, strict=True)
        ]
        scores, rows, is_proven = map(torch.cat, zip(*parts, strict=True))
        return (scores, rows), is_proven

    def _rescore(self, candidates: Candidates) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rescored = DeviceTopK(len(candidates.queries), self.k, self.documents.device)
        scores = self._fp32_scores(candidates)
        rescored.update_rows(scores, candidates.rows)
        best_scores, best_rows = rescored.result()
        is_proven = self._is_proven(candidates, best_scores[:, -1])
        return best_scores, best_rows, is_proven

    def _fp32_scores(self, candidates: Candidates) -> torch.Tensor:
        """(Q, M): a document's score does not depend on its place, so that equal documents tie."""
        size = max(1, RESCORED_BYTES // (4 * candidates.rows.shape[1] * self.documents.shape[1]))
        return torch.cat(
            [
                (self.documents[rows.long()] * queries[:, None]).sum(-1)
                for queries, rows in zip(
                    candidates.queries.split(size), candidates.rows.split(size), strict=True
                )
            ]
        )

    def _is_proven(self, candidates: Candidates, threshold: torch.Tensor) -> torch.Tensor:
        """(Q,) bool: whether no document outside of the candidates reaches the k-th best score (Q,) in fp32.

        Its score in bf16 is at most the candidates' lowest. By the Cauchy-Schwarz inequality the exact score
        is off by at most the product of one vector's error and the other's length, for both, and by what
        summing adds; the mean's part is computed exactly.
        """
        if candidates.rows.shape[1] == len(self.documents):
            return torch.ones_like(threshold, dtype=torch.bool)
        queries, dimension = candidates.queries.double(), self.documents.shape[1]
        rounded = candidates.queries.bfloat16().double()
        longest, longest_rounded, largest_error = self._largest.double().unbind()
        error = (rounded - queries).norm(dim=1) * longest_rounded + queries.norm(dim=1) * largest_error
        error += dimension * BF16_SUM_ERROR * rounded.norm(dim=1) * longest_rounded
        # The score of the k-th best, and that of the other document in an fp32 search, and centring itself.
        error += (3 * dimension + 4) * FP32_SUM_ERROR * queries.norm(dim=1) * longest
        highest = candidates.scores[:, -1].double() + queries @ self.mean.double() + error
        return highest < threshold.double()  # false for NaN


def candidates_of(k: int) -> int:
    """Documents that are scored again for the k best: the margin of bf16 holds about half as many more."""
    return 2 * k + 64


def _product(documents: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """(N, Q) float32 products of bf16 (N, D) and (D, Q)."""
    if documents.device.type == "cuda":
        return torch.mm(documents, queries, out_dtype=torch.float32)
    return documents.float() @ queries.float()  # products of two bf16 numbers are exact in fp32
