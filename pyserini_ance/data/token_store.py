"""Token ids of many texts: ragged, without special tokens or truncation, so that one store serves all lengths."""

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.token_parts import TokenParts
from pyserini_ance.storage.publish import publish_once, read_manifest

TEXTS_PER_CALL = 1024  # of MS MARCO's documents, 10,000 characters each, a tokenizer makes 0.3 GB before ids are taken from it
BAR_DELAY_SECONDS = 2
log = logging.getLogger(__name__)


class Specials(NamedTuple):
    """The ids a tokenizer puts around one text, and its padding id."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int


class TokenStore:
    """Ids of N texts, on disk as a memory map or in memory.

    `ids` (T,) unsigned, `offsets` (N + 1,) int64: text i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, specials: Specials):
        self.ids, self.offsets, self.specials = ids, offsets, specials

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of_lists(cls, lists: Sequence[Sequence[int]], specials: Specials) -> "TokenStore":
        offsets = _offsets([len(x) for x in lists])
        flat = np.fromiter((i for ids in lists for i in ids), np.uint32, int(offsets[-1]))
        return cls(flat, offsets, specials)

    def lengths(self, length_tokens: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Lengths of all texts, or of those in `rows`, with special tokens and after truncation to `length_tokens`."""
        plain = np.diff(self.offsets) if rows is None else self.offsets[rows + 1] - self.offsets[rows]
        return np.minimum(plain + len(self.specials.before) + len(self.specials.after), length_tokens)

    def batch(self, rows: np.ndarray, length_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        """Padded ids (B, L) int64 and mask (B, L) int64 (1 = token) of the texts in `rows`, L the longest of them."""
        before, after, pad = self.specials
        starts = self.offsets[rows]
        kept = np.minimum(self.offsets[rows + 1] - starts, length_tokens - len(before) - len(after))
        totals = kept + len(before) + len(after)
        width = int(totals.max())
        ids = np.full((len(rows), width), pad, np.int64)
        ids[:, : len(before)] = before
        inner = np.arange(width - len(before) - len(after))
        is_text = inner < kept[:, None]
        ids[:, len(before) : width - len(after)][is_text] = self.ids[(starts[:, None] + inner)[is_text]]
        for i, special in enumerate(after):
            ids[np.arange(len(rows)), totals - len(after) + i] = special
        return ids, (np.arange(width) < totals[:, None]).astype(np.int64)


def open_or_build(
    folder: Path, texts: Texts, tokenize: Callable[[list[dict]], list[list[int]]], specials: Specials, vocabulary: int, label: str
) -> TokenStore:
    """The store in `folder` (named by its key), built first when it is not there; a building process claims the folder.

    What a building that was interrupted has finished lies beside it, hidden, until the next one has gone on from there.
    """
    kind = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    publish_once(folder, {"texts": len(texts), "label": label}, lambda claimed: _build(claimed, texts, tokenize, kind, label))
    read_manifest(folder)
    offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
    kind = np.uint16 if (folder / "ids.uint16").exists() else np.uint32
    path = folder / f"ids.{np.dtype(kind).name}"
    ids = np.memmap(path, kind, "r") if offsets[-1] else np.empty(0, kind)
    return TokenStore(ids, offsets, specials)


def count_tokens(folder: Path) -> int:
    """Of a store that is there, without special tokens."""
    return int(np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)[-1])


def _build(folder: Path, texts: Texts, tokenize: Callable, kind: type, label: str) -> None:
    """Who has claimed `folder` has the parts beside it to himself."""
    beside = folder.with_name(f".{folder.name}.parts")
    parts = TokenParts(beside, kind)
    if parts.texts:
        log.info("tokenising %s goes on after %d of %d texts", label, parts.texts, len(texts))
    try:
        with tqdm(total=len(texts), initial=parts.texts, desc=f"tokenise {label}", unit=" texts", delay=BAR_DELAY_SECONDS, leave=False) as bar:
            for records in texts.blocks(TEXTS_PER_CALL, first=parts.texts):
                parts.append(tokenize(records))
                bar.update(len(records))
        parts.vouch()
    finally:
        parts.close()
    os.rename(parts.ids, folder / parts.ids.name)
    np.save(folder / "offsets.npy", _offsets(parts.lengths()), allow_pickle=False)
    shutil.rmtree(beside)
    log.info("tokenised %s: %d texts, %.1f tokens a text", label, len(texts), parts.tokens / max(1, len(texts)))


def _offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
