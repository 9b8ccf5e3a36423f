"""Texts that occur under several ids: the same query asked twice, copies of a document."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyserini_ance.data.texts import Texts


def compared_fields(fields: Sequence[str]) -> list[str]:
    """The fields that are equal in equal texts: title and text, or, where there is no text, all."""
    return [name for name in ("title", "text") if name in fields] if "text" in fields else list(fields)


def text_key(text: str) -> str:
    """The text without differences in case and blanks: people ask the same question in several spellings."""
    return " ".join(text.split()).casefold()


def hashes_of(columns: Sequence[Iterable[str | None]], count: int) -> np.ndarray:
    """(n,) int64: a hash of each of n texts, whose fields are in `columns`; other processes have others."""
    return np.fromiter(map(hash, zip(*columns, strict=True)), np.int64, count if columns else 0)


@dataclass(frozen=True, eq=False)
class SameTexts:
    """The rows of texts that occur several times.

    rows: (R,) int64, ascending: every row whose text another row has. firsts: (R,) int64, the first row with
    the text of each.
    """

    rows: np.ndarray
    firsts: np.ndarray

    @classmethod
    def among(cls, texts: "Texts", hashes: np.ndarray | None = None) -> "SameTexts":
        """Find the texts that agree in all `compared_fields`.

        hashes: (n,) int64, of the texts, as `hashes_of` gives them; None: of all texts, which are read. Texts
        with equal hashes are compared.
        """
        columns = [texts.columns[name] for name in compared_fields(list(texts.columns))]
        if hashes is None:
            hashes = hashes_of(columns, len(texts))
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
