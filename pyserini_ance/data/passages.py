"""Passages: a long document in several pieces, each with a row of its own among tokens and vectors ("MaxP").

Source: Dai and Callan 2019; Xiong et al. 2021, arXiv:2007.00808, Section 5 (documents of 4 passages of 512 tokens).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyserini_ance.data.token_store import TokenStore

DELIMITER = "#"


@dataclass(frozen=True)
class Passages:
    """Document i has the passages offsets[i]:offsets[i + 1], at least one. offsets (N + 1,) int64."""

    offsets: np.ndarray

    @cached_property
    def most(self) -> int:
        """Passages of the document that has most."""
        return int(np.diff(self.offsets).max(initial=1))

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
        starts, counts = self.offsets[documents], self.offsets[documents + 1] - self.offsets[documents]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1]), Passages(offsets)

    def documents(self, rows: np.ndarray) -> np.ndarray:
        """The document, int32, of each passage."""
        return (np.searchsorted(self.offsets, rows, side="right") - 1).astype(np.int32)

    def search(self, search: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]], queries: np.ndarray, k: int):
        """What `search` (queries (Q, D), k) finds of passages, as scores (Q, k) and rows (Q, k) of documents; k is cut to all."""
        k = min(k, len(self))
        return self.best(*search(queries, k * self.most), k)

    def best(self, scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k documents of the best passages: a ranking (Q, n) of passages, best first, as one of documents (Q, k).

        With n = k * most it is exact: among so many passages there are k documents, and a document stands where its best
        passage does. Raises ValueError when a ranking holds fewer than k documents.
        """
        documents = self.documents(rows)
        repeated = repeats(documents)
        if (short := (~repeated).sum(1) < k).any():
            raise ValueError(f"{int(short.sum())} rankings of {rows.shape[1]} passages hold fewer than {k} documents; search deeper")
        kept = np.argsort(repeated, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, kept, 1), np.take_along_axis(documents, kept, 1)


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


def cut(documents: TokenStore, length_tokens: int, most: int) -> tuple[TokenStore, Passages]:
    """Up to `most` consecutive passages of each document, special tokens around each of them; what is left over is not read.

    The token ids are those of `documents`, not copied: only the offsets are finer, and reading a passage cuts it at
    `length_tokens`. Differs from microsoft/ANCE: there 2,048 ids are reshaped to 4 x 512, so that only the first passage
    begins with <s>, and passages of nothing but padding are indexed too.
    """
    room = length_tokens - len(documents.specials.before) - len(documents.specials.after)
    lengths = np.diff(documents.offsets)
    counts = np.clip(-(-lengths // room), 1, most)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    piece = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    starts = np.repeat(documents.offsets[:-1], counts) + piece * room
    return TokenStore(documents.ids, np.append(starts, documents.offsets[-1]), documents.specials), Passages(offsets)
