"""Shards of an encoding: how texts are cut into them, and how processes that come and go share them."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyserini_ance.data.collection import Side
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import Precision
from pyserini_ance.storage.claim import ClaimLost, ClaimMonitor
from pyserini_ance.storage.publish import BeingWritten, is_complete, publishing, read_manifest
from pyserini_ance.vectors.encoding import ROWS_PER_GATHER, ShardedVectors, TextEncoder, encode_into
from pyserini_ance.vectors.vector_store import VectorStore, read_vectors

log = logging.getLogger(__name__)
LEAST_WINDOWS = 16
MOST_ATTEMPTS = 9
STORE = "vectors"
POLL_SECONDS = 0.2


class Shard(NamedTuple):
    """Part `number` of `of` contiguous parts of a corpus; the first has number 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read `3/8`. Raises ValueError for anything else."""
        number, _, of = text.partition("/")
        if number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of):
            return cls(int(number), int(of))
        raise ValueError(f"--shard {text}: expected I/N, shard I of N, from 1/N to N/N")

    def cut(self, windows: np.ndarray) -> np.ndarray:
        """The bounds (w + 1,) of the shard's windows, out of `windows` (W + 1,), those of the whole corpus.

        Raises ValueError if there are fewer windows than shards.
        """
        count = len(windows) - 1
        if self.of > count:
            raise ValueError(
                f"--shard {self}: a corpus of {windows[-1]:,} documents has {count} shards at most with this "
                "--tokens-per-batch"
            )
        return windows[count * (self.number - 1) // self.of : count * self.number // self.of + 1]

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def text_windows(texts: int, tokens_per_batch: int) -> np.ndarray:
    """(W + 1,) rows: the bounds of windows of consecutive texts, which no batch and no shard divides.

    They depend on the number of texts and the size of a batch alone, so that a text is in the same batch in
    every shard, and its vector has the same bits. A window fills dozens of batches, sorted by length, except
    in a corpus of fewer than `LEAST_WINDOWS` such windows.
    """
    size = max(1, min(tokens_per_batch // 2, -(-texts // LEAST_WINDOWS)))
    return np.append(np.arange(0, texts, size), texts)


class ShardTasks:
    """The encoding of all texts of `tokens` in `shards` tasks, each a published folder under `folder`.

    Any number of processes, which need not know of one another, claim tasks, encode them and publish them.
    The task of a process of this host that was killed is cleared and claimed again. A process of another host
    counts as lost when it has not touched its claim for a minute; its task is made again under another name
    (`3-of-8.1`), because it may still live: both make the same vectors.

    The other arguments are those of `encode_shards`.
    """

    def __init__(
        self,
        folder: Path,
        shards: int,
        key: dict[str, Any],
        encoder: Encoder,
        tokens: TokenStore,
        side: Side,
        precision: Precision,
        tokens_per_batch: int,
        label: str,
        world: World,
    ):
        self.folder, self.key, self.encoder, self.tokens = folder, key, encoder, tokens
        self.side, self.precision, self.tokens_per_batch = side, precision, tokens_per_batch
        self.label, self.world = label, world
        self.windows = text_windows(len(tokens), tokens_per_batch)
        count = min(shards, len(self.windows) - 1)
        self.shards = [Shard(number, count) for number in range(1, count + 1)]
        self._claims: dict[Path, ClaimMonitor] = {}

    def encode_free(self, is_needed: Callable[[], bool] = lambda: True) -> bool:
        """Encode the tasks that no other process works on; returns whether all tasks are complete.

        `is_needed` is asked before each task; when it says no, the rest is left.
        """
        for shard in self.shards:
            if not is_needed():
                return False
            self._encode(shard)
        return all(is_complete(self._folder(shard)) for shard in self.shards)

    def encode_all(self) -> None:
        """Return when all tasks are complete, made here or elsewhere."""
        while not self.encode_free():
            self.world.check()
            time.sleep(POLL_SECONDS)

    def vectors(self) -> ShardedVectors:
        """The vectors of all texts, when all tasks are complete. Raises RuntimeError for a damaged file."""
        for shard in self.shards:
            read_manifest(self._folder(shard))
        return ShardedVectors([read_vectors(*self._store(shard)) for shard in self.shards])

    def _encode(self, shard: Shard) -> None:
        folder, start = self._folder(shard), time.perf_counter()
        if is_complete(folder):
            return
        try:
            with publishing(folder, {**self.key, "shard": str(shard)}):
                self._fill(shard)
        except BeingWritten:
            return
        except FileExistsError:  # another process has completed it in the meantime
            if not is_complete(folder):
                raise
            return
        log.info("encoded shard %s of the %s in %.1f s", shard, self.label, time.perf_counter() - start)

    def _fill(self, shard: Shard) -> None:
        windows = shard.cut(self.windows)
        with closing(VectorStore(*self._store(shard))) as store:
            encode_into(
                store,
                self.encoder,
                self.tokens,
                self.side,
                self.precision,
                self.tokens_per_batch,
                f"{self.label}, shard {shard}",
                int(windows[0]),
                self.world,
                windows,
            )

    def _store(self, shard: Shard) -> tuple[Path, int, int, dict[str, Any]]:
        """Folder, rows, dimension and key of the shard's vectors, as a VectorStore takes them."""
        first, stop = shard.cut(self.windows)[[0, -1]].tolist()
        return self._folder(shard) / STORE, stop - first, self.encoder.dimension, {**self.key, "first": first}

    def _folder(self, shard: Shard) -> Path:
        """The folder of a task: the complete one, or the first whose maker is not lost."""
        name = f"{shard.number}-of-{shard.of}"
        attempts = [self.folder / name, *(self.folder / f"{name}.{i}" for i in range(1, MOST_ATTEMPTS))]
        complete = (folder for folder in attempts if is_complete(folder))
        return next(complete, None) or next(
            (folder for folder in attempts if not self._is_lost(folder)), attempts[-1]
        )

    def _is_lost(self, folder: Path) -> bool:
        try:
            self._claims.setdefault(folder, ClaimMonitor(folder)).check()
        except ClaimLost:
            return True
        return False


class EncodedTexts:
    """An encoder that finds the vectors of all texts made already, and reads them."""

    def __init__(self, encoder: TextEncoder, vectors: ShardedVectors):
        self.encoder, self.vectors, self.dimension = encoder, vectors, encoder.dimension

    def length_tokens(self, side: Side) -> int:
        return self.encoder.length_tokens(side)

    def encode_rows(
        self,
        tokens: TokenStore,
        rows: np.ndarray,
        side: Side,
        precision: Precision,
        tokens_per_batch: int | None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks (rows (B,), vectors (B, D) float32) in the order of `rows`."""
        for start in range(0, len(rows), ROWS_PER_GATHER):
            block = rows[start : start + ROWS_PER_GATHER]
            yield block, self.vectors[block]
