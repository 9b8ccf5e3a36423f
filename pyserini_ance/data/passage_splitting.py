"""Passage splitting: views of a token store in which every row is a passage of a document."""

from typing import Literal

import numpy as np

from pyserini_ance.data.passages import Passages
from pyserini_ance.data.token_store import TokenStore

SpecialTokens = Literal["per_passage", "per_document"]


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
    document, index = _document_and_index(passages, np.arange(passages.offsets[-1]))
    starts = documents.offsets[document] + index * text_tokens
    # Only the offsets are finer. Reading truncates each passage to `length_tokens`.
    return TokenStore(documents.ids, np.append(starts, documents.offsets[-1]), documents.specials), passages


def pad_passages(tokens: TokenStore, passages: Passages, max_passages: int) -> tuple[TokenStore, Passages]:
    """Append empty passages to each document until it has `max_passages`."""
    counts = np.diff(passages.offsets)
    padded = Passages(np.arange(len(passages) + 1) * max_passages, counts)
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
        document, index = _document_and_index(self.passages, np.arange(len(self)) if rows is None else rows)
        document_lengths = self.documents.lengths(self.max_passages * length_tokens, document)
        return np.minimum(document_lengths - index * length_tokens, length_tokens)

    def batch(self, rows: np.ndarray, length_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        document, index = _document_and_index(self.passages, rows)
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


def _document_and_index(passages: Passages, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The document of each passage, and the index of the passage in it."""
    document = passages.documents(rows)
    return document, rows - passages.offsets[document]
