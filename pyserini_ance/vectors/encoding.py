"""Encode token stores into vectors: some rows in memory, or a whole collection in shards, one per process;
and how texts are cut into shards."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from pyserini_ance.data.collection import Side
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder, check_vectors, to_device, to_host
from pyserini_ance.encoders.hardware import Precision
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.vectors.search import has_room
from pyserini_ance.vectors.vector_store import VectorStore, read_vectors, stores_of, written_windows

LEAST_WINDOWS = 16


class Shard(NamedTuple):
    """Part `number` of `of` contiguous parts of a corpus; the first has number 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str, option: str = "--shard") -> "Shard":
        """Read `3/8`. Raises ValueError for anything else."""
        number, _, of = text.partition("/")
        if number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of):
            return cls(int(number), int(of))
        raise ValueError(f"{option} {text}: expected I/N, part I of N, from 1/N to N/N")

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


ROWS_PER_GATHER = 4096
# Encoded and written whole, and sorted by length into batches with little padding: a second or so of a GPU,
# minutes of a CPU.
ROWS_PER_WINDOW = 8192


class ShardedVectors:
    """(N, D) float32 in consecutive shards, one per process; read by a slice of rows or by an array of rows.

    `own` is this process's shard, and its first row is row `first` of all. `held` is the same on the GPU that
    has just encoded it, or None.
    """

    def __init__(self, shards: Sequence[np.ndarray], rank: int = 0, held: torch.Tensor | None = None):
        self.shards, self.held = tuple(shards), held
        self._starts = np.cumsum([0, *map(len, self.shards)])
        self.own, self.first = self.shards[rank], int(self._starts[rank])

    @classmethod
    def split(cls, vectors: np.ndarray, world: World) -> "ShardedVectors":
        """Split vectors (N, D) that every process holds, so that each works on a shard of them."""
        return cls(np.array_split(vectors, world.size), world.rank)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.shards[0].shape[1]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """(R, D): a view for a slice within one shard, else a copy. Raises IndexError for a row that does not
        exist."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step)]
            spans = [slice(max(start - one, 0), max(stop - one, 0)) for one in self._starts[:-1].tolist()]
            parts = [part for shard, span in zip(self.shards, spans, strict=True) if len(part := shard[span])]
            return parts[0] if len(parts) == 1 else np.concatenate([self.own[:0], *parts])
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(f"expected a slice or rows (R,), got {rows.dtype} of shape {rows.shape}")
        # -1 stands for no document, never for the last one.
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"expected rows 0 to {len(self) - 1}, got rows {rows.min()} to {rows.max()}")
        vectors = np.empty((len(rows), self.shape[1]), np.float32)
        owners = np.searchsorted(self._starts[1:], rows, side="right")
        for owner in np.unique(owners):
            mask = owners == owner
            vectors[mask] = self.shards[owner][rows[mask] - self._starts[owner]]
        return vectors


class Windows(NamedTuple):
    """Windows of consecutive texts to encode, as their rows [start, stop), and how."""

    encoder: Encoder
    tokens: TokenStore
    side: Side
    precision: Precision
    tokens_per_batch: int | None
    bounds: list[tuple[int, int]]

    def encode(
        self, done: Callable[[int], object], held: torch.Tensor | None = None, first: int = 0
    ) -> Generator[tuple[int, np.ndarray]]:
        """Encode in this process, as an Engine; vectors on a GPU also go to `held`, from row `first` on."""
        encoder, settings = self.encoder, (self.side, self.precision, self.tokens_per_batch)

        def encoded(rows: np.ndarray) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
            for batch, vectors in encoder.encode_on_device(self.tokens, rows, *settings):
                if held is not None:
                    held[to_device(held.device, batch - first)[0]] = vectors
                yield batch, vectors

        for start, stop in self.bounds:
            window = np.empty((stop - start, encoder.dimension), np.float32)
            for batch_rows, vectors in to_host(encoded(np.arange(start, stop)), self.tokens):
                window[batch_rows - start] = vectors
                done(len(batch_rows))
            yield start, window


# Encodes windows elsewhere: yields each one's first row and vectors (W, D), in any order, and calls `done`
# with the number of texts that it has just encoded.
Engine = Callable[[Windows, Callable[[int], object]], Generator[tuple[int, np.ndarray]]]


def encode_some(
    encoder: Encoder,
    tokens: TokenStore,
    rows: np.ndarray,
    side: Side,
    precision: Precision,
    tokens_per_batch: int | None,
    label: str,
    world: World,
) -> np.ndarray:
    """Vectors (R, D) float32 of `rows` (distinct), in their order, in memory: for queries and samples.

    Called by all processes. Each encodes a share of even length, and returns the vectors of all.
    """
    order = np.argsort(-tokens.lengths(encoder.length_tokens(side), rows), kind="stable")
    partition = [order[rank :: world.size] for rank in range(world.size)]
    own = rows[partition[world.rank]]
    position = np.empty(len(tokens), np.int64)
    position[own] = np.arange(len(own))
    vectors = np.empty((len(own), encoder.dimension), np.float32)
    with _progress_bar(len(own), label, world) as bar:
        batches = encoder.encode_on_device(tokens, own, side, precision, tokens_per_batch)
        for batch_rows, batch in to_host(batches, tokens):
            vectors[position[batch_rows]] = batch
            bar.update(len(batch_rows))
    world.barrier()
    gathered = np.empty((len(rows), encoder.dimension), np.float32)
    # In blocks, which bounds how many are in memory twice. The first process has the most rows.
    for start in range(0, len(partition[0]), ROWS_PER_GATHER):
        block = slice(start, start + ROWS_PER_GATHER)
        part = torch.from_numpy(vectors[block]).to(world.device)
        every = world.gather(part, [len(positions[block]) for positions in partition])
        for positions, of_rank in zip(partition, every, strict=True):
            gathered[positions[block]] = of_rank.cpu().numpy()
    return gathered


def encode_shards(
    folder: Path,
    key: dict,
    encoder: Encoder,
    tokens: TokenStore,
    side: Side,
    precision: Precision,
    tokens_per_batch: int | None,
    label: str,
    world: World,
    windows: np.ndarray | None = None,
    hold: bool = False,
    engine: Engine | None = None,
) -> ShardedVectors:
    """The vectors of every text of `tokens`, stored under `folder`; an interrupted encoding is continued.

    A vector's last bits depend on its batch, so batches never depend on what was written before: each window
    is encoded whole, and the vectors of a continued encoding are bit for bit those of one that was not
    interrupted.

    Called by all processes. `key` says what the vectors are of, as for a VectorStore. Shards of another
    number of processes stay: a trainer and a refresher may share the folder.

    windows: (W + 1,) rows; no batch has texts of two of these W windows, and a process encodes whole ones:
    vectors then do not depend on the number of processes. None: `ROWS_PER_WINDOW` texts of a shard. hold:
    keep this process's vectors on its GPU as well (`ShardedVectors.held`), if it has the room and none of
    them was written before. engine: what encodes this process's windows in its place.
    """
    world.on_main(lambda: folder.mkdir(parents=True, exist_ok=True))
    starts = shard_bounds(tokens.lengths(encoder.length_tokens(side)), world.size)
    bounds = (starts if windows is None else windows[np.searchsorted(windows, starts)]).tolist()
    stores = stores_of(folder, bounds, encoder.dimension, key)
    first, end = bounds[world.rank : world.rank + 2]
    if windows is None:
        windows = np.append(np.arange(first, end, ROWS_PER_WINDOW), end)
    store = VectorStore(*stores[world.rank])
    written = written_windows(store.folder)
    missing = [
        (start, stop)
        for start, stop in pairwise(windows.tolist())
        if first <= start < stop <= end and (start - first, stop - first) not in written
    ]
    held = None
    vectors_bytes = store.rows * encoder.dimension * np.dtype(np.float32).itemsize
    on_gpu = encoder.device.type != "cpu"
    if hold and on_gpu and not written and not engine and has_room(vectors_bytes, str(encoder.device)):
        held = torch.empty((store.rows, encoder.dimension), device=encoder.device)
    todo = Windows(encoder, tokens, side, precision, tokens_per_batch, missing)
    bar = _progress_bar(sum(stop - start for start, stop in missing), label, world)
    encoded = engine(todo, bar.update) if engine and missing else todo.encode(bar.update, held, first)
    # A GPU does not wait for the disk.
    with bar, closing(encoded), ThreadPoolExecutor(1, "vector writer") as writer:
        writing = writer.submit(lambda: None)
        for start, window in encoded:
            if engine:
                check_vectors(tokens, np.arange(start, start + len(window)), window)
            writing.result()
            writing = writer.submit(store.write, start - first, window)
        writing.result()
    world.barrier()
    return ShardedVectors([read_vectors(*one) for one in stores], world.rank, held)


def _progress_bar(texts: int, label: str, world: World) -> tqdm:
    bar = {"desc": f"encode {label}", "unit": "text", "leave": False}
    return progress_bar(total=texts, disable=not (world.is_main and texts), **bar)


def shard_bounds(lengths: np.ndarray, shards: int) -> np.ndarray:
    """(shards + 1,) rows: shard i is rows bounds[i] to bounds[i + 1]. All shards have about as many tokens;
    some may be empty."""
    tokens = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    middles = (tokens[:-1] + tokens[1:]) / 2  # a text belongs to the shard that has most of it
    bounds = np.searchsorted(middles, tokens[-1] * np.arange(shards + 1) / shards)
    bounds[-1] = len(lengths)
    return bounds
