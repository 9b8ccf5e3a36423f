"""Exact search with products in bf16: candidates are scored again in fp32, and a bound proves each ranking.

The mean of the documents is subtracted before rounding. It shifts all scores of a query alike, so that ranks
stay, and the rest is shorter: encoders such as ANCE give vectors with a large common part, whose rounding
errors would exceed the differences between documents.

`CentredSearch` is for a GPU; on a CPU, `SampledSearch` (sampled_search.py) does the same.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch

from pyserini_ance.vectors.topk import DeviceTopK, ScoresAndRows

RESCORED_BYTES = 1 << 28  # of document vectors that are gathered at once
FEWEST_QUERIES = 513  # for which it is faster: the documents are rounded for each search
BF16_ROUNDING = 2.0**-8  # largest error of a number in bf16, relative to it
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

    First `prepare`, then `update` with all blocks of documents, then `result`. The host waits for nothing.
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

    @staticmethod
    def pays(queries: int, documents: torch.Tensor, k: int) -> bool:
        """Whether such a search is faster than one in fp32; for a block of queries it is not."""
        return queries >= FEWEST_QUERIES and len(documents) > 0

    def prepare(self) -> Iterable[None]:
        """Nothing is to be prepared: see `SampledSearch`."""
        return ()

    @property
    def is_hopeless(self) -> bool:
        """Never: the number of candidates is fixed."""
        return False

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

        Its score in bf16 is at most the candidates' lowest.
        """
        if candidates.rows.shape[1] == len(self.documents):
            return torch.ones_like(threshold, dtype=torch.bool)
        errors = largest_errors(candidates.queries, Lengths(*self._largest.unbind()))
        mean_scores = candidates.queries.double() @ self.mean.double()
        highest = candidates.scores[:, -1].double() + mean_scores + errors
        return highest < threshold.double()  # false for NaN


class Lengths(NamedTuple):
    """Scalars, the largest of all documents: length, that after centring and rounding, error of rounding."""

    whole: torch.Tensor
    rounded: torch.Tensor
    error: torch.Tensor


def largest_errors(queries: torch.Tensor, lengths: Lengths) -> torch.Tensor:
    """(Q,) float64: by how much a score in bf16 and the mean's part are off the score in fp32, at most.

    By the Cauchy-Schwarz inequality at most the product of one vector's error and the other's length, for
    both, and what summing adds; the mean's part is computed exactly.
    """
    exact, rounded = queries.double(), queries.bfloat16().double()
    dimension, (whole, rounded_length, error) = queries.shape[1], (each.double() for each in lengths)
    errors = (rounded - exact).norm(dim=1) * rounded_length + exact.norm(dim=1) * error
    errors += dimension * BF16_SUM_ERROR * rounded.norm(dim=1) * rounded_length
    # The score of the k-th best, and that of the other document in an fp32 search, and centring itself.
    return errors + (3 * dimension + 4) * FP32_SUM_ERROR * exact.norm(dim=1) * whole


def candidates_of(k: int) -> int:
    """Documents that are scored again for the k best: the margin of bf16 holds about half as many more."""
    return 2 * k + 64


def _product(documents: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """(N, Q) float32 products of bf16 (N, D) and (D, Q)."""
    if documents.device.type == "cuda":
        return torch.mm(documents, queries, out_dtype=torch.float32)
    return documents.float() @ queries.float()  # products of two bf16 numbers are exact in fp32
