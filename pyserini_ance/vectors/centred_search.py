"""Exact search with products in bf16: candidates are scored again in fp32, and a bound proves each ranking.

The mean of the documents is subtracted before rounding. It shifts all scores of a query alike, so that ranks
stay, and the rest is shorter: encoders such as ANCE give vectors with a large common part, whose rounding
errors would exceed the differences between documents.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from pyserini_ance.vectors.faiss_library import pair_scores
from pyserini_ance.vectors.topk import (
    DOCUMENTS_PER_GROUP,
    DeviceTopK,
    ScoresAndRows,
    TopK,
    above,
    best_of_groups,
)

RESCORED_BYTES = 1 << 28  # of document vectors that are gathered at once
# From these numbers on, a search in bf16 is faster: the documents are rounded for each search. On a CPU the
# queries need so many numbers in all, and a candidate must be rare.
FEWEST_QUERIES = 513
FEWEST_NUMBERS, FEWEST_DIMENSIONS = 160_000, 256
FEWEST_DOCUMENTS, FEWEST_PER_RESULT = 1 << 16, 500
SAMPLED_FOR_MEAN = 4096
BEST_IN_SAMPLE = 12  # of the k best of all documents, on average, if the sample is not too large then
LEAST_STRIDE = 8  # documents for each of the sample
MOST_SAMPLED = 1 << 17
ROWS_AT_ONCE = 1 << 12  # of the sample
MOST_GROUPS = 0.3  # of the sample above a threshold
MOST_CANDIDATES = 5  # times as many as expected
MOST_HOPELESS = 0.25  # of the queries
MAX_PENDING, MAX_PENDING_OF_ALL = 128, 1 << 16  # candidates per query of a block, and of all blocks
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
    def pays(queries: int, documents: int, dimension: int, k: int) -> bool:
        """Whether such a search is faster than one in fp32; for a block of queries it is not."""
        return queries >= FEWEST_QUERIES and documents > 0

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


class SampledSearch:
    """As `CentredSearch`, for a CPU: a sample of the documents says from which score on one is a candidate.

    So no block is sorted. Candidates are scored again while their block is in the processor's cache. A query
    with too many of them, as where bf16 cannot tell documents apart, has no proof.
    """

    def __init__(self, documents: torch.Tensor, query_blocks: Iterable[torch.Tensor], k: int):
        self.documents, self.k = documents, k
        self.mean = documents[:: max(1, len(documents) // SAMPLED_FOR_MEAN)].mean(0)
        self.blocks = [block.contiguous() for block in query_blocks]
        self._rounded = [block.bfloat16().T for block in self.blocks]  # faster here than rows of documents
        self._longest = documents.new_zeros(())  # after centring
        self._stride = sampling_stride(len(documents), k)
        # So many of the sample's best that fewer than k of all documents are hardly ever as good.
        expected = k / self._stride
        self._needed = round(expected + 5 * expected**0.5 + 4)
        self._thresholds: list[torch.Tensor] = []  # (Q,) bf16 of each block; infinite: no candidates
        self._counts = [torch.zeros(len(block), dtype=torch.int64) for block in self.blocks]
        max_pending = max(1, min(MAX_PENDING, MAX_PENDING_OF_ALL // max(1, len(self.blocks))))
        self._best = [TopK(len(block), k, max_pending=max_pending) for block in self.blocks]

    @staticmethod
    def pays(queries: int, documents: int, dimension: int, k: int) -> bool:
        """Whether such a search is faster than one in fp32."""
        enough = dimension >= FEWEST_DIMENSIONS and queries * dimension >= FEWEST_NUMBERS
        return enough and documents >= max(FEWEST_DOCUMENTS, FEWEST_PER_RESULT * k)

    def prepare(self) -> Iterable[None]:
        """Choose the thresholds; yields after each block of queries.

        With few exceptions, k documents score higher than a threshold by more than the errors.
        """
        sample = self._sample()
        for block, queries in zip(self.blocks, self._rounded, strict=True):
            best = best_of_groups(sample @ queries).T.float()
            of_sample = best.topk(min(self._needed, best.shape[1]), dim=1).values[:, -1]
            errors = self._errors(block) + BF16_ROUNDING * of_sample.abs()
            threshold = (of_sample - errors).bfloat16()
            share = (best > threshold[:, None]).float().mean(1)
            self._thresholds.append(threshold.masked_fill(share > MOST_GROUPS, torch.inf))
            yield

    @property
    def is_hopeless(self) -> bool:
        """Whether the search in fp32 would be left with a good part of the queries."""
        return bool(torch.cat(self._thresholds).isinf().float().mean() > MOST_HOPELESS)

    def update(self, first: int, stop: int) -> Iterable[None]:
        """Score the documents from row `first` to `stop`; yields after each block of queries."""
        rounded = self._round(self.documents[first:stop])
        parts = zip(self.blocks, self._rounded, self._thresholds, self._counts, self._best, strict=True)
        for block, queries, threshold, counts, best in parts:
            found = above(rounded @ queries, threshold)
            assert found is not None  # without a limit
            asked, rows = found[0], found[1] + first
            best.update_pairs(asked, rows, pair_scores(block, asked, self.documents, rows))
            counts += asked.bincount(minlength=len(counts))
            threshold[counts > MOST_CANDIDATES * self._needed * self._stride] = torch.inf
            yield

    def result(self) -> tuple[ScoresAndRows, torch.Tensor]:
        """Scores (Q, k) float32 and rows (Q, k) int32 of all queries, and whether each is proven (Q,)."""
        parts = zip(self.blocks, self._thresholds, map(self._filled, self._best), strict=True)
        found = [
            (*best, self._is_proven(queries, threshold, best[0][:, -1])) for queries, threshold, best in parts
        ]
        scores, rows, is_proven = map(torch.cat, zip(*found, strict=True))
        return (scores, rows), is_proven

    def _round(self, documents: torch.Tensor) -> torch.Tensor:
        centred = documents - self.mean
        self._longest = self._longest.maximum(centred.norm(dim=1).max())
        return centred.bfloat16()

    def _sample(self) -> torch.Tensor:
        """(S, D) bf16 of a document of each stride, in whole groups."""
        count = len(self.documents) // self._stride // DOCUMENTS_PER_GROUP * DOCUMENTS_PER_GROUP
        sample = torch.empty((count, self.documents.shape[1]), dtype=torch.bfloat16)
        rows = _one_of_each(self._stride, count)
        for part, chosen in zip(sample.split(ROWS_AT_ONCE), rows.split(ROWS_AT_ONCE), strict=True):
            part.copy_(self._round(self.documents[chosen]))
        return sample

    def _errors(self, queries: torch.Tensor) -> torch.Tensor:
        """(Q,) float64, as `largest_errors`, from the longest document so far."""
        rounded = self._longest * (1 + BF16_ROUNDING)
        lengths = Lengths(self._longest + self.mean.norm(), rounded, self._longest * BF16_ROUNDING)
        return largest_errors(queries, lengths)

    def _filled(self, best: TopK) -> ScoresAndRows:
        """The k best of a block; with fewer candidates, -inf fills the rest, and there is no proof."""
        scores, rows = best.result()
        missing = self.k - scores.shape[1]
        return functional.pad(scores, (0, missing), value=-torch.inf), functional.pad(rows, (0, missing))

    def _is_proven(self, queries: torch.Tensor, threshold: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        """(Q,) bool: whether no document below the `threshold` (Q,) reaches the k-th `best` score (Q,).

        Sums are rounded to bf16 before they are compared with the threshold. None if it has been raised.
        """
        highest = threshold.double() + BF16_ROUNDING * threshold.double().abs()
        highest += queries.double() @ self.mean.double() + self._errors(queries)
        return highest < best.double()  # false for NaN


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


def sampling_stride(documents: int, k: int) -> int:
    """The number of documents for each one of the sample from which `SampledSearch` takes its thresholds."""
    return max(LEAST_STRIDE, k // BEST_IN_SAMPLE, documents // MOST_SAMPLED)


def candidates_of(k: int) -> int:
    """Documents that are scored again for the k best: the margin of bf16 holds about half as many more."""
    return 2 * k + 64


def _product(documents: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """(N, Q) float32 products of bf16 (N, D) and (D, Q)."""
    if documents.device.type == "cuda":
        return torch.mm(documents, queries, out_dtype=torch.float32)
    return documents.float() @ queries.float()  # products of two bf16 numbers are exact in fp32


def _one_of_each(stride: int, strides: int) -> torch.Tensor:
    """(strides,) int64: a row of each `stride` rows. Rows at equal distances could all be alike."""
    offsets = np.random.default_rng(0).integers(stride, size=strides)
    return torch.from_numpy(np.arange(strides) * stride + offsets)
