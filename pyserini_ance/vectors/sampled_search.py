"""`CentredSearch` for a CPU: a sample of the documents says from which score on one is a candidate."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from pyserini_ance.encoders.hardware import memory_bytes
from pyserini_ance.vectors.centred_search import BF16_ROUNDING, Lengths, largest_errors
from pyserini_ance.vectors.faiss_library import pair_scores
from pyserini_ance.vectors.topk import DOCUMENTS_PER_GROUP, ScoresAndRows, TopK, above, best_of_groups

# From these numbers on, such a search is faster than one in fp32: the queries have so many numbers in all,
# which pay for rounding the documents, and a candidate is rare. Documents that are held are rounded already.
FEWEST_NUMBERS, FEWEST_DIMENSIONS = 160_000, 256
FEWEST_DOCUMENTS, FEWEST_PER_RESULT = 1 << 16, 500
FEWEST_QUERIES_IF_HELD = 16
HELD_SHARE = 0.25  # of the machine's memory
SAMPLED_FOR_MEAN = 4096
BEST_IN_SAMPLE = 12  # of the k best of all documents, on average, if the sample is not too large then
LEAST_STRIDE = 8  # documents for each of the sample
MOST_SAMPLED = 1 << 17
ROWS_AT_ONCE = 1 << 12  # that are centred and rounded
MOST_GROUPS = 0.3  # of the sample above a threshold
MOST_CANDIDATES = 5  # times as many as expected
MOST_HOPELESS = 0.25  # of the queries
MAX_PENDING, MAX_PENDING_OF_ALL = 128, 1 << 16  # candidates per query of a block, and of all blocks


class Rounded(NamedTuple):
    """Documents (N, D) bf16 less their mean, and the length of the longest before rounding."""

    vectors: torch.Tensor
    longest: torch.Tensor


class CentredDocuments:
    """`vectors` (N, D) float32 of a CPU, and what searches read of them: less their mean, in bf16.

    is_held: all are rounded before the first search, and kept for the next ones, which takes half the memory
    of `vectors` and that of a sample. Otherwise each search rounds them anew.
    """

    def __init__(self, vectors: torch.Tensor, is_held: bool = False):
        self.vectors, self.is_held = vectors, is_held
        self._samples: dict[int, Rounded] = {}

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def mean(self) -> torch.Tensor:
        """(D,), of documents at equal distances, which is near enough."""
        return self.vectors[:: max(1, len(self) // SAMPLED_FOR_MEAN)].mean(0)

    @property
    def device(self) -> torch.device:
        return self.vectors.device

    def rows(self, first: int, stop: int) -> Rounded:
        """Those from row `first` to `stop`; the longest is that of all if they are held."""
        if self.is_held:
            return self._all._replace(vectors=self._all.vectors[first:stop])
        return self._round([self.vectors[first:stop]], stop - first)

    def sample(self, stride: int) -> Rounded:
        """A document of each `stride`, in whole groups; the longest as in `rows`."""
        if stride in self._samples:
            return self._samples[stride]
        rows = _one_of_each(stride, len(self) // stride // DOCUMENTS_PER_GROUP * DOCUMENTS_PER_GROUP)
        if not self.is_held:
            return self._round((self.vectors[part] for part in rows.split(ROWS_AT_ONCE)), len(rows))
        made = self._samples[stride] = self._all._replace(vectors=self._all.vectors[rows])
        return made

    @cached_property
    def _all(self) -> Rounded:
        return self._round(self.vectors.split(ROWS_AT_ONCE), len(self))

    def _round(self, parts: Iterable[torch.Tensor], count: int) -> Rounded:
        """Documents that come part by part, as the processor's cache has room, `count` of them in all."""
        rounded = torch.empty((count, self.vectors.shape[1]), dtype=torch.bfloat16)
        longest, start = self.vectors.new_zeros(()), 0
        for part in parts:
            centred = part - self.mean
            longest = longest.maximum(centred.norm(dim=1).max())
            rounded[start : start + len(part)] = centred
            start += len(part)
        return Rounded(rounded, longest)


class SampledSearch:
    """The k best of `documents` for blocks of queries (Q, D) float32, called as `CentredSearch`.

    No block of documents is sorted. Candidates are scored again while their block is in the processor's
    cache. A query with too many of them, as where bf16 cannot tell documents apart, has no proof.
    """

    def __init__(self, documents: CentredDocuments, query_blocks: Iterable[torch.Tensor], k: int):
        self.documents, self.k = documents, k
        self.blocks = [block.contiguous() for block in query_blocks]
        self._rounded = [block.bfloat16().T for block in self.blocks]  # faster here than rows of documents
        self._longest = torch.zeros(())  # of the documents so far, after centring
        self._stride = sampling_stride(len(documents), k)
        # So many of the sample's best that fewer than k of all documents are hardly ever as good.
        expected = k / self._stride
        self._needed = round(expected + 5 * expected**0.5 + 4)
        self._thresholds: list[torch.Tensor] = []  # (Q,) bf16 of each block; infinite: no candidates
        self._counts = [torch.zeros(len(block), dtype=torch.int64) for block in self.blocks]
        max_pending = max(1, min(MAX_PENDING, MAX_PENDING_OF_ALL // max(1, len(self.blocks))))
        self._best = [TopK(len(block), k, max_pending=max_pending) for block in self.blocks]

    @staticmethod
    def pays(queries: int, documents: CentredDocuments, k: int) -> bool:
        """Whether such a search is faster than one in fp32."""
        dimension = documents.vectors.shape[1]
        return sampling_pays(queries, len(documents), dimension, k, documents.is_held)

    def prepare(self) -> Iterable[None]:
        """Choose the thresholds; yields after each block of queries.

        With few exceptions, k documents score higher than a threshold by more than the errors.
        """
        sample = self._noted(self.documents.sample(self._stride))
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
        rounded = self._noted(self.documents.rows(first, stop))
        parts = zip(self.blocks, self._rounded, self._thresholds, self._counts, self._best, strict=True)
        for block, queries, threshold, counts, best in parts:
            found = above(rounded @ queries, threshold)
            assert found is not None  # without a limit
            asked, rows = found[0], found[1] + first
            best.update_pairs(asked, rows, pair_scores(block, asked, self.documents.vectors, rows))
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

    def _noted(self, documents: Rounded) -> torch.Tensor:
        """The vectors of `documents`, of which the longest counts from now on."""
        self._longest = self._longest.maximum(documents.longest)
        return documents.vectors

    def _errors(self, queries: torch.Tensor) -> torch.Tensor:
        """(Q,) float64, as `largest_errors`, from the longest document so far."""
        rounded = self._longest * (1 + BF16_ROUNDING)
        lengths = Lengths(self._longest + self.documents.mean.norm(), rounded, self._longest * BF16_ROUNDING)
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
        highest += queries.double() @ self.documents.mean.double() + self._errors(queries)
        return highest < best.double()  # false for NaN


def may_hold(documents: int, dimension: int) -> bool:
    """Whether vectors (documents, dimension) in bf16 take less than `HELD_SHARE` of the machine's memory.

    Its free memory changes from one start to the next, and with it which of two equal scores comes first.
    """
    return held_bytes(documents, dimension) <= HELD_SHARE * memory_bytes()


def held_bytes(documents: int, dimension: int) -> int:
    """Bytes that held `CentredDocuments` take at most, next to their vectors in fp32."""
    return 2 * dimension * (documents + documents // LEAST_STRIDE)


def sampling_pays(queries: int, documents: int, dimension: int, k: int, is_held: bool) -> bool:
    """Whether a `SampledSearch` is faster than one in fp32."""
    if dimension < FEWEST_DIMENSIONS or documents < max(FEWEST_DOCUMENTS, FEWEST_PER_RESULT * k):
        return False
    return queries >= FEWEST_QUERIES_IF_HELD if is_held else queries * dimension >= FEWEST_NUMBERS


def sampling_stride(documents: int, k: int) -> int:
    """The number of documents for each one of the sample from which `SampledSearch` takes its thresholds."""
    return max(LEAST_STRIDE, k // BEST_IN_SAMPLE, documents // MOST_SAMPLED)


def _one_of_each(stride: int, strides: int) -> torch.Tensor:
    """(strides,) int64: a row of each `stride` rows. Rows at equal distances could all be alike."""
    offsets = np.random.default_rng(0).integers(stride, size=strides)
    return torch.from_numpy(np.arange(strides) * stride + offsets)
