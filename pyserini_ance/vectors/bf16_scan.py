"""Exact search with products in bf16: candidates are scored again in fp32, and a bound proves each ranking.

The mean of the documents is subtracted before rounding. It shifts all scores of a query alike, so that ranks
stay, and the rest is shorter: encoders such as ANCE give vectors with a large common part, whose rounding
errors would exceed the differences between documents.

`DeviceScan` is for a GPU, where the host waits for nothing; `CpuScan` is for a processor that multiplies in
bf16. Both are made for blocks of queries, called with all blocks of documents in rising rows (`update`), and
then give scores, rows and which queries are proven (`result`). A query without a proof is searched in fp32.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from pyserini_ance.vectors import topk
from pyserini_ance.vectors.faiss_library import pair_scores
from pyserini_ance.vectors.topk import DOCUMENTS_PER_GROUP, ScoresAndRows, TopK

BF16_ROUNDING = 2.0**-8  # largest error of a number in bf16, relative to it
# Errors of sums of D products, as multiples of D and of the product of two lengths. fp32 sums have 2^-24;
# a tensor core truncates where others round.
BF16_SUM_ERROR, FP32_SUM_ERROR = 2.0**-21, 2.0**-24
# From these numbers on, a scan is faster than a search in fp32: the queries pay for rounding the documents,
# and a candidate is rare. They are queries on a GPU, and on a CPU numbers of all queries.
FEWEST_QUERIES = 513
FEWEST_NUMBERS, FEWEST_DIMENSIONS = 160_000, 256
FEWEST_DOCUMENTS, FEWEST_PER_RESULT = 1 << 16, 500
RESCORED_BYTES = 1 << 28  # of document vectors that a GPU gathers at once
SAMPLED_FOR_MEAN = 4096
BEST_IN_SAMPLE = 12  # of the k best of all documents, on average, if the sample is not too large then
LEAST_STRIDE = 8  # documents for each of the sample
MOST_SAMPLED = 1 << 17
ROWS_AT_ONCE = 1 << 12  # that a CPU centres and rounds
ROUNDED_AT_ONCE = 1 << 16  # by a GPU
MOST_GROUPS = 0.3  # of the sample above a threshold
MOST_CANDIDATES = 5  # times as many as expected
MAX_PENDING, MAX_PENDING_OF_ALL = 128, 1 << 16  # candidates per query of a block, and of all blocks

Proven = tuple[ScoresAndRows, Tensor]


class DeviceScan:
    """The k best of `documents` (N, D) for blocks of queries (Q, D), all float32 on one GPU.

    The candidates are so many of the best by bf16.
    """

    blocks_at_once = 8  # of documents: the more are scored together, the fewer of them are sorted

    def __init__(self, documents: Tensor, query_blocks: Iterable[Tensor], k: int):
        self.documents, self.k, self.blocks = documents, k, list(query_blocks)
        self.mean = documents.mean(0)
        self._rounded = [block.bfloat16() for block in self.blocks]
        none = torch.empty(0, dtype=torch.int64, device=documents.device)
        self._best = [(block[:, :0], none.expand(len(block), 0)) for block in self.blocks]
        # Largest over the documents: length, length after centring and rounding, and error of rounding.
        self._largest = documents.new_zeros(3)

    @staticmethod
    def pays(queries: int, documents: Tensor, k: int) -> bool:
        """Whether such a scan is faster than a search in fp32; for a block of queries it is not."""
        return queries >= FEWEST_QUERIES and len(documents) > 0

    def update(self, first: int, stop: int) -> None:
        """Score the documents [first, stop)."""
        # Whole groups apart from the rest: they need no sort, and their number suits products of matrices.
        whole = stop - first - (stop - first) % topk.DOCUMENTS_PER_LARGE_GROUP
        for start, end in ((first, first + whole), (first + whole, stop)):
            if start == end:
                continue
            parts = self.documents[start:end].split(ROUNDED_AT_ONCE)
            rounded = torch.cat([self._round(part) for part in parts])
            for place, queries in enumerate(self._rounded):
                if rounded.device.type == "cuda":
                    scores = torch.mm(queries, rounded.T, out_dtype=torch.float32)
                else:  # products of two bf16 numbers are exact in fp32
                    scores = queries.float() @ rounded.float().T
                self._best[place] = topk.add_highest(self._best[place], scores, start, candidates_of(self.k))

    def _round(self, documents: Tensor) -> Tensor:
        """Documents less their mean in bf16; the largest lengths count from now on."""
        centred = documents - self.mean
        rounded = centred.bfloat16()
        parts = documents, rounded.float(), rounded.float() - centred
        self._largest = self._largest.maximum(torch.stack([each.norm(dim=1).max() for each in parts]))
        return rounded

    def result(self) -> Proven:
        """Scores (Q, k) float32 and rows (Q, k) int32 of all queries, and whether each is proven (Q,)."""
        parts = [self._rescored(block, *best) for block, best in zip(self.blocks, self._best, strict=True)]
        scores, rows, is_proven = map(torch.cat, zip(*parts, strict=True))
        return (scores, rows), is_proven

    def _rescored(self, queries: Tensor, bf16_scores: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The k best of the candidates `rows` (Q, M), whose `bf16_scores` (Q, M) fall, and which are proven.

        No document outside of the candidates has a score in bf16 above their lowest.
        """
        best_scores, best_rows = best_of_candidates(queries, self.documents, rows, self.k)
        if rows.shape[1] == len(self.documents):
            return best_scores, best_rows, torch.ones_like(best_scores[:, 0], dtype=torch.bool)
        highest = bf16_scores[:, -1].double() + queries.double() @ self.mean.double()
        highest += largest_errors(queries, *self._largest.unbind())
        return best_scores, best_rows, highest < best_scores[:, -1].double()  # false for NaN


class CpuScan:
    """As `DeviceScan`, on a CPU: the candidates are those above a threshold, which a sample of the documents
    shows; no block of documents is sorted, and candidates are scored again while they are in the cache.

    A query with too many of them, as where bf16 cannot tell documents apart, has no proof.
    """

    blocks_at_once = 1

    def __init__(self, documents: Tensor, query_blocks: Iterable[Tensor], k: int):
        self.documents, self.k = documents, k
        self.blocks = [block.contiguous() for block in query_blocks]
        # Of documents at equal distances, which is near enough.
        self.mean = documents[:: max(1, len(documents) // SAMPLED_FOR_MEAN)].mean(0)
        self._rounded = [block.bfloat16().T for block in self.blocks]  # faster here than rows of documents
        self._longest = torch.zeros(())  # of the documents so far, after centring
        stride = max(LEAST_STRIDE, k // BEST_IN_SAMPLE, len(documents) // MOST_SAMPLED)
        # Enough of the sample's best that hardly ever fewer than k of all documents are as good.
        needed = round(k / stride + 5 * (k / stride) ** 0.5 + 4)
        self._most = MOST_CANDIDATES * needed * stride
        self._thresholds = self._chosen(stride, needed)  # (Q,) bf16 of each block; infinite: no candidates
        self._counts = [torch.zeros(len(block), dtype=torch.int64) for block in self.blocks]
        max_pending = max(1, min(MAX_PENDING, MAX_PENDING_OF_ALL // max(1, len(self.blocks))))
        self._best = [TopK(len(block), k, max_pending=max_pending) for block in self.blocks]

    @staticmethod
    def pays(queries: int, documents: Tensor, k: int) -> bool:
        """Whether such a scan is faster than a search in fp32."""
        count, dimension = documents.shape
        if dimension < FEWEST_DIMENSIONS or count < max(FEWEST_DOCUMENTS, FEWEST_PER_RESULT * k):
            return False
        return queries * dimension >= FEWEST_NUMBERS

    def _chosen(self, stride: int, needed: int) -> list[Tensor]:
        """Thresholds: with few exceptions, k documents score higher by more than the errors."""
        count = len(self.documents) // stride // DOCUMENTS_PER_GROUP * DOCUMENTS_PER_GROUP
        # A row of each `stride` rows, drawn: rows at equal distances could all be alike.
        offsets = np.random.default_rng(0).integers(stride, size=count)
        rows = torch.from_numpy(np.arange(count) * stride + offsets)
        sample = torch.cat([self._round(self.documents[part]) for part in rows.split(ROWS_AT_ONCE)])
        thresholds = []
        for block, queries in zip(self.blocks, self._rounded, strict=True):
            best = topk.best_of_groups(sample @ queries).T.float()
            lowest = best.topk(min(needed, best.shape[1]), dim=1).values[:, -1]
            threshold = (lowest - self._errors(block) - BF16_ROUNDING * lowest.abs()).bfloat16()
            share = (best > threshold[:, None]).float().mean(1)
            thresholds.append(threshold.masked_fill(share > MOST_GROUPS, torch.inf))
        return thresholds

    def _round(self, documents: Tensor) -> Tensor:
        """Documents less their mean in bf16; the longest counts from now on."""
        centred = documents - self.mean
        self._longest = self._longest.maximum(centred.norm(dim=1).max())
        return centred.bfloat16()

    def update(self, first: int, stop: int) -> None:
        rounded = self._round(self.documents[first:stop])
        parts = zip(self.blocks, self._rounded, self._thresholds, self._counts, self._best, strict=True)
        for block, queries, threshold, counts, best in parts:
            if threshold.isinf().all():
                continue
            asked, rows = topk.above(rounded @ queries, threshold)
            rows += first
            best.update_pairs(asked, rows, pair_scores(block, asked, self.documents, rows))
            counts += asked.bincount(minlength=len(counts))
            threshold[counts > self._most] = torch.inf

    def result(self) -> Proven:
        """As `DeviceScan.result`; with fewer than k candidates, NaN fills the rest and nothing is proven."""
        parts = []
        for queries, threshold, best in zip(self.blocks, self._thresholds, self._best, strict=True):
            best_scores, best_rows = best.result()
            # Sums are rounded to bf16 before they are compared with the threshold.
            highest = threshold.double() + BF16_ROUNDING * threshold.double().abs()
            highest += queries.double() @ self.mean.double() + self._errors(queries)
            is_proven = highest < best_scores[:, -1].double()  # false for NaN
            parts.append((best_scores, best_rows, is_proven))
        scores, rows, proven = map(torch.cat, zip(*parts, strict=True))
        return (scores, rows), proven

    def _errors(self, queries: Tensor) -> Tensor:
        """(Q,) float64, as `largest_errors`, from the longest document so far."""
        rounded = self._longest * (1 + BF16_ROUNDING)
        return largest_errors(
            queries, self._longest + self.mean.norm(), rounded, self._longest * BF16_ROUNDING
        )


def largest_errors(queries: Tensor, whole: Tensor, rounded_length: Tensor, error: Tensor) -> Tensor:
    """(Q,) float64: by how much a score in bf16 and the mean's part are off the score in fp32, at most.

    whole, rounded_length, error: scalars, the largest over all documents of the length, of that after
    centring and rounding, and of the rounding error. By the Cauchy-Schwarz inequality a score is off by at
    most the product of one vector's error and the other's length, for both, and what summing adds; the mean's
    part is computed exactly.
    """
    exact, rounded = queries.double(), queries.bfloat16().double()
    whole, rounded_length, error = (each.double() for each in (whole, rounded_length, error))
    dimension = queries.shape[1]
    errors = (rounded - exact).norm(dim=1) * rounded_length + exact.norm(dim=1) * error
    errors += dimension * BF16_SUM_ERROR * rounded.norm(dim=1) * rounded_length
    # The score of the k-th best, and that of the other document in an fp32 search, and centring itself.
    return errors + (3 * dimension + 4) * FP32_SUM_ERROR * exact.norm(dim=1) * whole


def best_of_candidates(queries: Tensor, documents: Tensor, rows: Tensor, k: int) -> ScoresAndRows:
    """The k best of the candidates `rows` (Q, M) of each query, in fp32, on the device of `documents`."""
    size = max(1, RESCORED_BYTES // (4 * rows.shape[1] * documents.shape[1]))
    # Not a product of matrices: a score must not depend on the document's place, so that equal ones tie.
    scores = torch.cat(
        [
            (documents[some.long()] * asked[:, None]).sum(-1)
            for asked, some in zip(queries.split(size), rows.split(size), strict=True)
        ]
    )
    best = TopK(len(queries), k, documents.device)
    best.update_rows(scores, rows)
    return best.result()


def candidates_of(k: int) -> int:
    """Documents that are scored again for the k best: the margin of bf16 holds about half as many more."""
    return 2 * k + 64
