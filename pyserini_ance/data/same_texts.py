"""Texts that occur under several ids: the same query asked twice, copies of a document."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pyserini_ance.data.texts import Texts


@dataclass(frozen=True, eq=False)
class SameTexts:
    """The rows of texts that occur several times.

    rows: (R,) int64, ascending: every row whose text another row has. firsts: (R,) int64, the first row with
    the text of each.
    """

    rows: np.ndarray
    firsts: np.ndarray

    @classmethod
    def among(cls, texts: "Texts", hash_of: Callable[[Any], int] = hash) -> "SameTexts":
        """Find the texts that have the same title and text, or, without a text, the same fields.

        In memory are a hash of each text and its position. Texts with equal hashes are compared.
        """
        named = [texts.columns[name] for name in ("title", "text") if name in texts.columns]
        columns = named if "text" in texts.columns else list(texts.columns.values())
        hashed = map(hash_of, zip(*columns, strict=True))
        hashes = np.fromiter(hashed, np.int64, len(texts) if columns else 0)
        order = np.argsort(hashes, kind="stable")
        repeated = np.flatnonzero(np.diff(hashes[order]) == 0)
        rows = order[np.union1d(repeated, repeated + 1)]  # by hash, then ascending
        firsts = np.empty(len(rows), np.int64)
        of_hash: dict[tuple[str, ...], int] = {}
        for index, row in enumerate(rows.tolist()):
            if index == 0 or hashes[row] != hashes[rows[index - 1]]:
                of_hash = {}
            firsts[index] = of_hash.setdefault(tuple(column[row] for column in columns), row)
        _, numbers, counts = np.unique(firsts, return_inverse=True, return_counts=True)
        several = counts[numbers] > 1
        rows, firsts = rows[several], firsts[several]
        ascending = np.argsort(rows)
        return cls(rows[ascending], firsts[ascending])

    def __len__(self) -> int:
        return len(self.rows)

    def first_of(self, rows: np.ndarray) -> np.ndarray:
        """The first row with the text of each of `rows`, of any shape; PADDING stays."""
        if not len(self):
            return rows
        places = np.searchsorted(self.rows, rows).clip(max=len(self) - 1)
        return np.where(self.rows[places] == rows, self.firsts[places], rows)

    def counts(self, firsts: np.ndarray) -> np.ndarray:
        """(n,) int64: how many rows have the text of each of the `firsts` (n,)."""
        ordered = np.sort(self.firsts)
        copies = np.searchsorted(ordered, firsts, side="right") - np.searchsorted(ordered, firsts)
        return np.maximum(copies, 1)
