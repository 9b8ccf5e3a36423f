"""Token ids of many texts: ragged, without special tokens or truncation, so that one store serves all lengths."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from pyserini_ance.data.collection import Texts
from pyserini_ance.storage.files import BlockFile
from pyserini_ance.storage.publish import publish_once, read_manifest

TEXTS_PER_CALL = 4096
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
    """The store in `folder` (named by its key), built first when it is not there; a building process claims the folder."""
    kind = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    publish_once(folder, {"texts": len(texts), "label": label}, lambda claimed: _build(claimed, texts, tokenize, kind, label))
    read_manifest(folder)
    offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
    kind = np.uint16 if (folder / "ids.uint16").exists() else np.uint32
    path = folder / f"ids.{np.dtype(kind).name}"
    ids = np.memmap(path, kind, "r") if offsets[-1] else np.empty(0, kind)
    return TokenStore(ids, offsets, specials)


def _build(folder: Path, texts: Texts, tokenize: Callable, kind: type, label: str) -> None:
    lengths: list[int] = []
    written = 0
    out = BlockFile(folder / f"ids.{np.dtype(kind).name}", 0)
    try:
        for start in tqdm(range(0, len(texts), TEXTS_PER_CALL), desc=f"tokenise {label}", unit="block", leave=False):
            lists = tokenize(texts.take(range(start, min(start + TEXTS_PER_CALL, len(texts)))))
            block = np.fromiter((i for ids in lists for i in ids), kind)
            out.write_at(written, block.tobytes())
            written += block.nbytes
            lengths.extend(map(len, lists))
    finally:
        out.close()
    np.save(folder / "offsets.npy", _offsets(lengths), allow_pickle=False)
    log.info("tokenised %s: %d texts, %.1f tokens a text", label, len(texts), np.mean(lengths))


def _offsets(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)
