"""Token stores: the token ids of many texts, ragged, without special tokens and truncation.

One store serves all lengths.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.known_positives import offsets_of
from pyserini_ance.storage.files import path_in_errors, save_array
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.storage.publish import publish_once, read_manifest

if TYPE_CHECKING:
    from pyserini_ance.data.passages import Passages

TEXTS_PER_CALL = 1024
# For 10 million characters, a tokenizer needs 0.3 GB before the ids are extracted.
CHARACTERS_PER_CALL = 10_000_000
DELAY_SECONDS = 2  # of the progress bar

log = logging.getLogger(__name__)


class Specials(NamedTuple):
    """The special token ids that a tokenizer puts before and after a text, and its padding id."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int


class TokenStore:
    """The token ids of N texts, memory-mapped from disk or in memory.

    ids: (T,) unsigned integers; offsets: (N + 1,) int64; text i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    text_ids: Sequence[str] | None = None  # if they are known
    whole: "tuple[TokenStore, Passages] | None" = None  # the documents, if the texts are their passages

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, specials: Specials):
        self.ids, self.offsets, self.specials = ids, offsets, specials

    def name(self, row: int) -> str:
        """How messages name a text: by its id, a passage by that of its document."""
        if self.whole is not None:
            documents, passages = self.whole
            return documents.name(int(passages.documents(np.array(row))))
        return f"text {row}" if self.text_ids is None else f"text {self.text_ids[row]!r}"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of_lists(cls, lists: Sequence[Sequence[int]], specials: Specials) -> "TokenStore":
        offsets = offsets_of(np.fromiter(map(len, lists), np.int64, len(lists)))
        flat = np.fromiter((i for ids in lists for i in ids), np.uint32, int(offsets[-1]))
        return cls(flat, offsets, specials)

    def lengths(self, length_tokens: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Lengths of all texts, or of `rows`, with special tokens and truncated to `length_tokens`."""
        plain = np.diff(self.offsets) if rows is None else self.offsets[rows + 1] - self.offsets[rows]
        return np.minimum(plain + len(self.specials.before) + len(self.specials.after), length_tokens)

    def rows_of(self, ids: Sequence[int]) -> np.ndarray:
        """(n,) int64, ascending: the texts that consist of exactly these token ids."""
        rows = np.flatnonzero(np.diff(self.offsets) == len(ids))
        for place, id in enumerate(ids):
            rows = rows[self.ids[self.offsets[rows] + place] == id]
        return rows

    def batch(self, rows: np.ndarray, length_tokens: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (B, L) int64, padded, and mask (B, L) int64 (1 = token) of the texts in `rows`.

        L is the longest length.
        """
        before, after, pad = self.specials
        starts = self.offsets[rows]
        text_lengths = np.minimum(self.offsets[rows + 1] - starts, length_tokens - len(before) - len(after))
        totals = text_lengths + len(before) + len(after)
        width = int(totals.max())
        ids = np.full((len(rows), width), pad, np.int64)
        ids[:, : len(before)] = before
        inner = np.arange(width - len(before) - len(after))
        is_text = inner < text_lengths[:, None]
        ids[:, len(before) : width - len(after)][is_text] = self.ids[(starts[:, None] + inner)[is_text]]
        for i, special in enumerate(after):
            ids[np.arange(len(rows)), totals - len(after) + i] = special
        return ids, (np.arange(width) < totals[:, None]).astype(np.int64)


def open_or_build(
    folder: Path,
    texts: Texts,
    tokenize: Callable[[list[dict[str, str]]], list[list[int]]],
    specials: Specials,
    vocabulary: int,
    label: str,
) -> TokenStore:
    """Open the store in `folder`, which is named by its key; build it if it does not exist.

    Raises PermissionError for a cache that cannot be written, RuntimeError if a file of it is damaged.
    """
    kind = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
    ids_file = f"ids.{kind.name}"

    def build(claimed: Path) -> None:
        lengths = [np.empty(0, np.uint32)]
        name = f"tokenise {label}"
        with (
            path_in_errors(claimed),
            open(claimed / ids_file, "wb") as file,
            progress_bar(total=len(texts), desc=name, unit=" texts", leave=False, delay=DELAY_SECONDS) as bar,
        ):
            for records in _calls(texts):
                lists = tokenize(records)
                lengths.append(np.fromiter(map(len, lists), np.uint32, len(lists)))
                ids = np.fromiter(chain.from_iterable(lists), kind, int(lengths[-1].sum()))
                file.write(ids.tobytes())
                bar.update(len(lists))
        offsets = offsets_of(np.concatenate(lengths))
        save_array(claimed / "offsets.npy", offsets)
        tokens_per_text = offsets[-1] / max(1, len(texts))
        log.info("tokenised %s: %d texts, %.1f tokens per text", label, len(texts), tokens_per_text)

    publish_once(folder, {"texts": len(texts), "label": label}, build)
    read_manifest(folder)
    offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
    ids = np.memmap(folder / ids_file, kind, "r") if offsets[-1] else np.empty(0, kind)
    store = TokenStore(ids, offsets, specials)
    store.text_ids = texts.ids
    return store


def _calls(texts: Texts) -> Iterator[list[dict[str, str]]]:
    """The texts in the blocks that a tokenizer gets, a new one after each CHARACTERS_PER_CALL characters."""
    for records in texts.blocks(TEXTS_PER_CALL):
        ends = np.cumsum([sum(map(len, record.values())) for record in records])
        parts = (ends // CHARACTERS_PER_CALL).tolist()
        for _, part in groupby(zip(parts, records, strict=True), key=itemgetter(0)):
            yield [record for _, record in part]
