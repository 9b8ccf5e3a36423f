"""Passages of long documents ("MaxP"): each passage has its own row among tokens and vectors.

`split_passages` makes a view of a token store in which every row is a passage.

Source: Dai and Callan 2019; Xiong et al. 2021, arXiv:2007.00808, Section 5 (documents of 4 passages of 512
tokens).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from pyserini_ance.data.known_positives import offsets_of, repeats, selected
from pyserini_ance.data.token_store import TokenStore

DELIMITER = "#"
DOCUMENTS_PER_BLOCK = 16_384
SpecialTokens = Literal["per_passage", "per_document"]


@dataclass(frozen=True)
class Passages:
    """The passages of N documents: document i has the rows offsets[i]:offsets[i + 1], at least one.

    offsets: (N + 1,) int64. filled: (N,) int64 or None. The first filled[i] passages of document i, at least
    one, hold its tokens; the passages after them are empty. None: no passage is empty.
    """

    offsets: np.ndarray
    filled: np.ndarray | None = None

    @classmethod
    def of_counts(cls, counts: np.ndarray) -> "Passages":
        return cls(offsets_of(counts))

    @cached_property
    def max_passages(self) -> int:
        return int(np.diff(self.offsets).max(initial=1))

    @property
    def empty(self) -> int:
        return 0 if self.filled is None else int(self.offsets[-1] - self.filled.sum())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and mask, both (..., max_passages), of the passages of `documents` (...).

        The mask is False where a document has fewer passages; the row there is that of its first passage.
        """
        starts = self.offsets[documents][..., None]
        rows = starts + np.arange(self.max_passages)
        mask = rows < self.offsets[np.asarray(documents) + 1][..., None]
        return np.where(mask, rows, starts), mask

    def rows(self, documents: np.ndarray, filled: bool = False) -> tuple[np.ndarray, "Passages"]:
        """The rows of all passages of some documents (n,), in order, and their grouping by document.

        filled: without the empty passages.
        """
        counts = self.filled[documents] if filled and self.filled is not None else None
        offsets, rows = selected(self.offsets, documents, counts)
        return rows, Passages(offsets)

    def documents(self, rows: np.ndarray) -> np.ndarray:
        """int32, the document of each passage; -1 for row -1 (no passage)."""
        return (np.searchsorted(self.offsets, rows, side="right") - 1).astype(np.int32)

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The document of each passage, and the index of the passage in it."""
        documents = self.documents(rows)
        return documents, rows - self.offsets[documents]

    def search[Vectors](
        self, search: Callable[[Vectors, int], tuple[np.ndarray, np.ndarray]], queries: Vectors, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search documents with a function that searches passages.

        `search` takes queries (Q, D) and k. Returns the scores (Q, k) and rows (Q, k) of documents; k is at
        most the number of documents.
        """
        k = min(k, len(self))
        # Exact: so many passages cover at least k documents.
        scores, rows = self.of_ranking(*search(queries, k * self.max_passages))
        return scores[:, :k], rows[:, :k]

    def of_ranking(self, scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents of rankings of passages (Q, n), best first: scores and rows (Q, n) of documents.

        A document ranks by its best passage. Fewer than n documents end with -inf and -1, as rankings of an
        approximate index that end early do.
        """
        documents = self.documents(rows)
        first = ~repeats(documents) & (documents >= 0)
        order = np.argsort(~first, axis=1, kind="stable")
        mask = np.take_along_axis(first, order, 1)
        best_scores = np.where(mask, np.take_along_axis(scores, order, 1), -np.inf)
        return best_scores, np.where(mask, np.take_along_axis(documents, order, 1), -1)

    def merge(self, scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Merge the rankings of all passages (P, k), best first, into one ranking for each document (N, k).

        A row that several passages of a document retrieve gets the best of its scores. The result is exact:
        the k best rows of a document are among the k best rows of its passages.
        """
        merged_scores, merged_rows = [scores[:0]], [rows[:0]]
        for start in range(0, len(self), DOCUMENTS_PER_BLOCK):
            passages, mask = self.of(np.arange(start, min(start + DOCUMENTS_PER_BLOCK, len(self))))
            own_scores = np.where(mask[..., None], scores[passages], -np.inf).reshape(len(passages), -1)
            own_rows = rows[passages].reshape(len(passages), -1)
            order = np.lexsort((own_rows, -own_scores), axis=-1)
            ranked = np.take_along_axis(own_rows, order, 1)
            top = np.argsort(repeats(ranked), axis=1, kind="stable")[:, : rows.shape[1]]
            merged_rows.append(np.take_along_axis(ranked, top, 1))
            merged_scores.append(np.take_along_axis(own_scores, np.take_along_axis(order, top, 1), 1))
        return np.concatenate(merged_scores), np.concatenate(merged_rows)


def passage_ids(ids: Sequence[str], passages: Passages | None) -> Sequence[str]:
    """The ids of passages, `id#0`, `id#1`, ..., for Pyserini's `--max-passage`; without passages, `ids`."""
    if passages is None:
        return ids
    return [
        f"{id}{DELIMITER}{index}"
        for id, count in zip(ids, np.diff(passages.offsets).tolist(), strict=True)
        for index in range(count)
    ]


def check_delimiter(ids: Sequence[str]) -> None:
    """Raise ValueError if a document id contains the delimiter of passage ids."""
    if taken := [id for id in ids if DELIMITER in id]:
        raise ValueError(
            f"{len(taken)} document ids contain {DELIMITER!r}, first {taken[0]!r}; "
            "Pyserini splits passage ids there. Rename them, or set encoder.tokenization.document.passages=1"
        )


def split_passages(
    documents: TokenStore,
    length_tokens: int,
    max_passages: int,
    special_tokens: SpecialTokens = "per_passage",
) -> tuple[TokenStore, Passages]:
    """Split each document into up to `max_passages` consecutive passages.

    A passage has up to `length_tokens` tokens, special tokens included. Text after the last passage is not
    read. The result shares the token ids of `documents`; nothing is copied.

    With `per_passage`, special tokens enclose each passage. With `per_document`, they enclose the document,
    which is then split together with them, as in microsoft/ANCE, where 2,048 ids are reshaped to 4 x 512:
    only the first passage begins with <s>, and the others are pooled at an ordinary token. The </s> at the
    end of the document forms a passage of its own if the split falls right before it.
    """
    if special_tokens == "per_document":
        whole = WindowedPassages(documents, length_tokens, max_passages)
        return whole, whole.passages
    text_tokens = length_tokens - len(documents.specials.before) - len(documents.specials.after)
    passages = Passages.of_counts(np.clip(-(-np.diff(documents.offsets) // text_tokens), 1, max_passages))
    document, index = passages.places(np.arange(passages.offsets[-1]))
    starts = documents.offsets[document] + index * text_tokens
    # Only the offsets are finer. Reading truncates each passage to `length_tokens`.
    return TokenStore(documents.ids, np.append(starts, documents.offsets[-1]), documents.specials), passages


def pad_passages(tokens: TokenStore, passages: Passages, max_passages: int) -> tuple[TokenStore, Passages]:
    """Append empty passages to each document until it has `max_passages`."""
    padded = Passages(np.arange(len(passages) + 1) * max_passages, np.diff(passages.offsets))
    return PaddedPassages(tokens, passages, max_passages), padded


class WindowedPassages(TokenStore):
    """Documents enclosed in special tokens and split every `length_tokens`.

    They must be read at this length.
    """

    def __init__(self, documents: TokenStore, length_tokens: int, max_passages: int):
        self.documents, self.max_passages, self.specials = documents, max_passages, documents.specials
        lengths = documents.lengths(max_passages * length_tokens)
        self.passages = Passages.of_counts(np.maximum(1, -(-lengths // length_tokens)))

    def __len__(self) -> int:
        return int(self.passages.offsets[-1])

    def lengths(self, length_tokens: int, rows: np.ndarray | None = None) -> np.ndarray:
        document, index = self.passages.places(np.arange(len(self)) if rows is None else rows)
        document_lengths = self.documents.lengths(self.max_passages * length_tokens, document)
        return np.minimum(document_lengths - index * length_tokens, length_tokens)

    def batch(self, rows: np.ndarray, length_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        document, index = self.passages.places(rows)
        ids, mask = self.documents.batch(document, self.max_passages * length_tokens)
        columns = (index * length_tokens)[:, None] + np.arange(self.lengths(length_tokens, rows).max())
        is_token = columns < mask.sum(1, keepdims=True)
        window = np.take_along_axis(ids, np.where(is_token, columns, 0), 1)
        return np.where(is_token, window, self.specials.pad), is_token.astype(np.int64)


class PaddedPassages(TokenStore):
    """The passages of each document, padded with empty passages to `max_passages` consecutive rows.

    An empty passage is a single padding token that attends to itself.
    """

    # Differs from microsoft/ANCE: there, an empty passage has 512 tokens of id 0 (RoBERTa's <s>; since
    # September 2021 id 1, <pad>), all masked, which equals no mask at all where it is defined. Here it has
    # one token because RoBERTa's <pad> has the same position everywhere: 512 of them are alike in every layer
    # and have the vector of one. This does not hold for other models.

    def __init__(self, tokens: TokenStore, passages: Passages, max_passages: int):
        self.tokens, self.passages, self.max_passages = tokens, passages, max_passages
        self.specials = tokens.specials

    def __len__(self) -> int:
        return len(self.passages) * self.max_passages

    def lengths(self, length_tokens: int, rows: np.ndarray | None = None) -> np.ndarray:
        inner, empty = self._inner(np.arange(len(self)) if rows is None else rows)
        return np.where(empty, 1, self.tokens.lengths(length_tokens, inner))

    def batch(self, rows: np.ndarray, length_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        inner, empty = self._inner(rows)
        ids, mask = self.tokens.batch(inner, length_tokens)
        ids[empty], mask[empty] = self.specials.pad, np.arange(mask.shape[1]) == 0
        width = int(mask.sum(1).max())
        return ids[:, :width], mask[:, :width]

    def _inner(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of `tokens`, and a mask of empty passages.

        An empty passage gets the row of the document's first passage.
        """
        document, index = np.divmod(rows, self.max_passages)
        starts, stops = self.passages.offsets[document], self.passages.offsets[document + 1]
        empty = starts + index >= stops
        return np.where(empty, starts, starts + index), empty
