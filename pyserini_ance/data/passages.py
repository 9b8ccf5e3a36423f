"""Passages: a long document in several pieces, each with a row of its own among tokens and vectors ("MaxP").

Source: Dai and Callan 2019; Xiong et al. 2021, arXiv:2007.00808, Section 5 (documents of 4 passages of 512 tokens).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

DELIMITER = "#"
DOCUMENTS_PER_BLOCK = 16_384


@dataclass(frozen=True)
class Passages:
    """Document i has the passages offsets[i]:offsets[i + 1], at least one. offsets (N + 1,) int64.

    The first filled[i] of them, at least one, hold tokens of it, and those after are empty; None: none is. filled (N,) int64.
    """

    offsets: np.ndarray
    filled: np.ndarray | None = None

    @classmethod
    def of_counts(cls, counts: np.ndarray) -> "Passages":
        """Document i has counts[i] passages."""
        return cls(np.concatenate([[0], np.cumsum(counts)]))

    @cached_property
    def most(self) -> int:
        """Passages of the document that has most."""
        return int(np.diff(self.offsets).max(initial=1))

    @property
    def empty(self) -> int:
        return 0 if self.filled is None else int(self.offsets[-1] - self.filled.sum())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (..., most) of the passages of `documents` (...), and mask: False where a document has fewer, whose first stands there."""
        starts = self.offsets[documents][..., None]
        rows = starts + np.arange(self.most)
        mask = rows < self.offsets[np.asarray(documents) + 1][..., None]
        return np.where(mask, rows, starts), mask

    def rows(self, documents: np.ndarray) -> tuple[np.ndarray, "Passages"]:
        """All passages of some documents (n,), in their order, and where those of each stand among them."""
        return self._firsts(documents, self.offsets[documents + 1] - self.offsets[documents])

    def filled_rows(self, documents: np.ndarray) -> tuple[np.ndarray, "Passages"]:
        """The same without the empty ones."""
        return self.rows(documents) if self.filled is None else self._firsts(documents, self.filled[documents])

    def _firsts(self, documents: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, "Passages"]:
        among = Passages.of_counts(counts)
        return np.repeat(self.offsets[documents] - among.offsets[:-1], counts) + np.arange(among.offsets[-1]), among

    def documents(self, rows: np.ndarray) -> np.ndarray:
        """The document, int32, of each passage; -1 for -1, which is none."""
        return (np.searchsorted(self.offsets, rows, side="right") - 1).astype(np.int32)

    def search(self, search: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]], queries: np.ndarray, k: int):
        """What `search` (queries (Q, D), k) finds of passages, as scores (Q, k) and rows (Q, k) of documents; k is cut to all."""
        k = min(k, len(self))
        return self.best(*search(queries, k * self.most), k)

    def best(self, scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k documents of the best passages: a ranking (Q, n) of passages, best first, as one of documents (Q, k).

        With n = k * most it is exact: among so many passages there are k documents, and a document stands where its best
        passage does. A ranking that ends early (-1, of an index that looks at a part only) is one of fewer documents, -1 after
        them. Raises ValueError when a whole one holds fewer than k.
        """
        documents = self.documents(rows)
        found = ~repeats(documents) & (documents >= 0)
        if (short := (found.sum(1) < k) & (documents >= 0).all(1)).any():
            raise ValueError(f"{int(short.sum())} rankings of {rows.shape[1]} passages hold fewer than {k} documents; search deeper")
        kept = np.argsort(~found, axis=1, kind="stable")[:, :k]
        there = np.take_along_axis(found, kept, 1)
        return np.where(there, np.take_along_axis(scores, kept, 1), -np.inf), np.where(there, np.take_along_axis(documents, kept, 1), -1)

    def merge(self, scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What each document finds: from the rankings of all its passages (P, k), best first, one (N, k), where a row that
        several have found has the best of its scores.

        It is exact: the k best for a document are among the k best for its passages.
        """
        blocks = [np.arange(start, min(start + DOCUMENTS_PER_BLOCK, len(self))) for start in range(0, len(self), DOCUMENTS_PER_BLOCK)]
        merged = [self._merge(scores, rows, block) for block in blocks] or [(scores, rows)]
        return np.concatenate([found for found, _ in merged]), np.concatenate([found for _, found in merged])

    def _merge(self, scores: np.ndarray, rows: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pieces, there = self.of(documents)
        scores = np.where(there[..., None], scores[pieces], -np.inf).reshape(len(documents), -1)
        k, rows = rows.shape[1], rows[pieces].reshape(len(documents), -1)
        order = np.lexsort((rows, -scores), axis=-1)
        scores, rows = np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
        kept = np.argsort(repeats(rows), axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)


def passage_ids(ids: Sequence[str], passages: Passages | None) -> Sequence[str]:
    """One for each passage, `id#0`, `id#1`, ...: what Pyserini's `--max-passage` takes apart again. None: `ids` themselves."""
    if passages is None:
        return ids
    return [f"{id}{DELIMITER}{piece}" for id, count in zip(ids, np.diff(passages.offsets).tolist(), strict=True) for piece in range(count)]


def refuse_delimiter(ids: Sequence[str]) -> None:
    """Raises ValueError for a document whose own id could not be told from a passage's."""
    if taken := [id for id in ids if DELIMITER in id]:
        raise ValueError(
            f"{len(taken)} document ids hold {DELIMITER!r}, first {taken[0]!r}, where Pyserini cuts the ids of passages; rename them, "
            "or set encoder.tokenization.document.passages=1"
        )


def repeats(rows: np.ndarray) -> np.ndarray:
    """(B, n) bool: does it stand in an earlier column of its line already?"""
    order = np.argsort(rows, axis=1, kind="stable")
    ranked = np.take_along_axis(rows, order, 1)
    repeated = np.zeros(rows.shape, bool)
    np.put_along_axis(repeated, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], 1)
    return repeated
