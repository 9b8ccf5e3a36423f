"""Cutting documents into passages: which tokens each of them holds."""

from typing import Literal

import numpy as np

from pyserini_ance.data.passages import Passages
from pyserini_ance.data.token_store import TokenStore

Around = Literal["passage", "document"]


def cut(documents: TokenStore, length_tokens: int, most: int, special_tokens: Around = "passage") -> tuple[TokenStore, Passages]:
    """Up to `most` consecutive passages of each document, of `length_tokens` with special tokens; what is left over is not read.

    The token ids are those of `documents`, not copied. Special tokens are around each passage, or around the document, which is
    cut with them, as in microsoft/ANCE, where 2,048 ids are reshaped to 4 x 512: only its first passage begins with <s>, the
    others are pooled by an ordinary token; its end has </s>, alone in a passage where the cut falls before it.
    """
    if special_tokens == "document":
        whole = WholeCut(documents, length_tokens, most)
        return whole, whole.passages
    room = length_tokens - len(documents.specials.before) - len(documents.specials.after)
    passages = Passages.of_counts(np.clip(-(-np.diff(documents.offsets) // room), 1, most))
    of, piece = _places(passages, np.arange(passages.offsets[-1]))
    starts = documents.offsets[of] + piece * room
    # Only the offsets are finer: reading a passage cuts it at `length_tokens`.
    return TokenStore(documents.ids, np.append(starts, documents.offsets[-1]), documents.specials), passages


def fill_up(tokens: TokenStore, passages: Passages, most: int) -> tuple[TokenStore, Passages]:
    """The same passages, and for each document as many empty ones as bring it to `most`."""
    counts = np.diff(passages.offsets)
    return FilledUp(tokens, passages, most), Passages(np.arange(len(passages) + 1) * most, counts)


class WholeCut(TokenStore):
    """Documents with their special tokens, cut every `length_tokens`, the length at which it is to be read."""

    def __init__(self, documents: TokenStore, length_tokens: int, most: int):
        self.documents, self.most, self.specials = documents, most, documents.specials
        self.passages = Passages.of_counts(np.maximum(1, -(-documents.lengths(most * length_tokens) // length_tokens)))

    def __len__(self) -> int:
        return int(self.passages.offsets[-1])

    def lengths(self, length_tokens: int, rows: np.ndarray | None = None) -> np.ndarray:
        of, piece = _places(self.passages, np.arange(len(self)) if rows is None else rows)
        return np.minimum(self.documents.lengths(self.most * length_tokens, of) - piece * length_tokens, length_tokens)

    def batch(self, rows: np.ndarray, length_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        of, piece = _places(self.passages, rows)
        ids, mask = self.documents.batch(of, self.most * length_tokens)
        columns = (piece * length_tokens)[:, None] + np.arange(self.lengths(length_tokens, rows).max())
        is_token = columns < mask.sum(1, keepdims=True)
        found = np.take_along_axis(ids, np.where(is_token, columns, 0), 1)
        return np.where(is_token, found, self.specials.pad), is_token.astype(np.int64)


class FilledUp(TokenStore):
    """Passages, each document's in a line of `most`, and empty ones after them: one padding token each, which sees itself."""

    # Differs from microsoft/ANCE: there an empty passage is 512 tokens of id 0 (RoBERTa's <s>; since September 2021 of id 1, <pad>), all
    # masked, which is as if none were, where it is not undefined. RoBERTa's <pad> has the same position everywhere, so that 512 of them
    # are alike in every layer, and have the vector of one; another model's have not.

    def __init__(self, tokens: TokenStore, passages: Passages, most: int):
        self.tokens, self.passages, self.most, self.specials = tokens, passages, most, tokens.specials

    def __len__(self) -> int:
        return len(self.passages) * self.most

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
        """The rows of `tokens`, and which are empty instead, where the document's first stands."""
        of, piece = np.divmod(rows, self.most)
        starts, stops = self.passages.offsets[of], self.passages.offsets[of + 1]
        empty = starts + piece >= stops
        return np.where(empty, starts, starts + piece), empty


def _places(passages: Passages, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The document of each passage, and its number there."""
    of = passages.documents(rows)
    return of, rows - passages.offsets[of]
