"""Token stores: the token ids of many texts, ragged, without special tokens and truncation.

One store serves all lengths. It is built in the hidden folder `.NAME.parts`, from which an interrupted
tokenization continues.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyserini_ance.data.collection import Texts
from pyserini_ance.storage.files import (
    BlockFile,
    append_json_line,
    beside,
    path_in_errors,
    read_json_lines,
    write_whole,
)
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.storage.publish import publish_once, read_manifest

SYNC_SECONDS = 2  # the most work that a killed process loses, besides its current block
LENGTHS, LOG = "lengths.uint32", "log.jsonl"
READ_BYTES = 1 << 20
# For 1,024 of MS MARCO's documents, of 10,000 characters each, a tokenizer needs 0.3 GB before the ids are
# extracted.
TEXTS_PER_CALL = 1024
BAR_DELAY_SECONDS = 2

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

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, specials: Specials):
        self.ids, self.offsets, self.specials = ids, offsets, specials

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of_lists(cls, lists: Sequence[Sequence[int]], specials: Specials) -> "TokenStore":
        """A store in memory of the token ids in `lists`."""
        offsets = _offsets([len(ids) for ids in lists])
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


class TokenWriter:
    """Write token ids (`kind`) and text lengths (uint32) into a folder; a killed writer's work is resumed.

    `texts` and `tokens` count what was written. Each line of the log covers the texts since the line before
    and is appended once they are on disk; it holds the counts and the hashes of the data. Data not covered by
    a matching log line is discarded on resumption.
    """

    def __init__(self, folder: Path, kind: type[np.unsignedinteger]):
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._kinds = folder / LOG, (np.dtype(kind), np.dtype(np.uint32))
        self.ids = folder / f"ids.{self._kinds[0].name}"
        self._paths = self.ids, folder / LENGTHS
        self.texts = self.tokens = 0
        self._resume()
        self._files = [BlockFile(path, 0) for path in self._paths]
        self._start_interval()

    def append(self, lists: Sequence[Sequence[int]]) -> None:
        """Append the token ids of the next texts."""
        lengths = np.fromiter(map(len, lists), np.uint32, len(lists))
        ids = np.fromiter(chain.from_iterable(lists), self._kinds[0], int(lengths.sum()))
        for file, sha, array, at in zip(
            self._files, self._shas, (ids, lengths), (self.tokens, self.texts), strict=True
        ):
            data = array.tobytes()
            file.write_at(at * array.itemsize, data)
            sha.update(data)
        self.texts, self.tokens = self.texts + len(lengths), self.tokens + len(ids)
        if time.monotonic() - self._interval_start > SYNC_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Sync the data to disk and append a log line that covers it."""
        for file in self._files:
            file.sync()
        record = {
            "texts": self.texts,
            "tokens": self.tokens,
            "sha256": [sha.hexdigest() for sha in self._shas],
        }
        append_json_line(self._log, record, durable=True)
        self._start_interval()

    def lengths(self) -> np.ndarray:
        """(texts,) uint32."""
        return np.fromfile(self._paths[1], np.uint32, self.texts)

    def close(self) -> None:
        """Close the files. Work that is not committed is discarded on resumption."""
        for file in self._files:
            file.close()

    def _start_interval(self) -> None:
        self._shas, self._interval_start = (hashlib.sha256(), hashlib.sha256()), time.monotonic()

    def _resume(self) -> None:
        """Restore the counts from the log lines that match the data, and truncate the rest."""
        records, valid = read_json_lines(self._log), 0
        for record in records:
            if self._hashes(record) != record["sha256"]:
                break
            self.texts, self.tokens, valid = record["texts"], record["tokens"], valid + 1
        write_whole(self._log, "".join(json.dumps(record) + "\n" for record in records[:valid]))
        for path, kind, count in zip(self._paths, self._kinds, (self.tokens, self.texts), strict=True):
            with path_in_errors(path), open(path, "ab") as file:
                os.truncate(file.fileno(), count * kind.itemsize)

    def _hashes(self, record: dict[str, Any]) -> list[str]:
        """The hashes of the data from the current counts up to those of a log line."""
        spans = ((self.tokens, record["tokens"]), (self.texts, record["texts"]))
        return [
            _hash(path, start * kind.itemsize, stop * kind.itemsize)
            for path, kind, (start, stop) in zip(self._paths, self._kinds, spans, strict=True)
        ]


def _hash(path: Path, start: int, stop: int) -> str:
    """sha256 of a range of bytes; of the bytes that exist if the file is shorter or missing."""
    sha = hashlib.sha256()
    if path.exists():
        with open(path, "rb") as file:
            file.seek(start)
            while data := file.read(min(READ_BYTES, stop - file.tell())):
                sha.update(data)
    return sha.hexdigest()


def open_or_build(
    folder: Path,
    texts: Texts,
    tokenize: Callable[[list[dict[str, str]]], list[list[int]]],
    specials: Specials,
    vocabulary: int,
    label: str,
) -> TokenStore:
    """Open the store in `folder` (named by its key).

    If it does not exist, build the store.

    An interrupted build leaves its work in a hidden folder next to `folder`; the next build continues from
    there.
    """
    kind = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    publish_once(
        folder,
        {"texts": len(texts), "label": label},
        lambda temporary: _build(temporary, beside(folder, "parts"), texts, tokenize, kind, label),
    )
    return open_store(folder, specials)


def open_store(folder: Path, specials: Specials) -> TokenStore:
    """Open the complete store in `folder`. Raises RuntimeError if a file of it is damaged."""
    read_manifest(folder)
    offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
    stored_kind = np.dtype(np.uint16 if (folder / "ids.uint16").exists() else np.uint32)
    path = folder / f"ids.{stored_kind.name}"
    ids = np.memmap(path, stored_kind, "r") if offsets[-1] else np.empty(0, stored_kind)
    return TokenStore(ids, offsets, specials)


def token_lengths(folder: Path) -> np.ndarray:
    """(N,) int64: the lengths of the texts of an existing store, whole and without special tokens."""
    return np.diff(np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False))


def _build(
    folder: Path,
    hidden: Path,
    texts: Texts,
    tokenize: Callable[[list[dict[str, str]]], list[list[int]]],
    kind: type[np.unsignedinteger],
    label: str,
) -> None:
    """Build a store in `folder`, with the parts so far in `hidden`."""
    writer = TokenWriter(hidden, kind)
    if writer.texts:
        log.info("resuming tokenisation of %s after %d of %d texts", label, writer.texts, len(texts))
    try:
        with progress_bar(
            total=len(texts),
            initial=writer.texts,
            desc=f"tokenise {label}",
            unit=" texts",
            delay=BAR_DELAY_SECONDS,
            leave=False,
        ) as bar:
            for records in texts.blocks(TEXTS_PER_CALL, first=writer.texts):
                writer.append(tokenize(records))
                bar.update(len(records))
        writer.commit()
    finally:
        writer.close()
    os.rename(writer.ids, folder / writer.ids.name)
    np.save(folder / "offsets.npy", _offsets(writer.lengths()), allow_pickle=False)
    shutil.rmtree(hidden)
    tokens_per_text = writer.tokens / max(1, len(texts))
    log.info("tokenised %s: %d texts, %.1f tokens per text", label, len(texts), tokens_per_text)


def _offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
