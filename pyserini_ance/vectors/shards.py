"""A collection's vectors in shards: consecutive rows a process, written by it alone, read by all."""

from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Side
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder, Precision
from pyserini_ance.vectors.encode import encode_into
from pyserini_ance.vectors.store import VectorStore, read_vectors


class ShardedVectors:
    """(N, D) float32 in consecutive parts, one a process; `own` is this process's, and its first row is row `first` of all.

    Reads like an array, by a slice of rows or by an array of rows.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, parts: Sequence[np.ndarray], rank: int = 0):
        self.parts = tuple(parts)
        self._starts = np.cumsum([0, *map(len, self.parts)])
        self.own, self.first = self.parts[rank], int(self._starts[rank])

    @classmethod
    def split(cls, vectors: np.ndarray, world: World) -> "ShardedVectors":
        """Vectors (N, D) that every process holds, each to work on a part of them."""
        return cls(np.array_split(vectors, world.size), world.rank)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.parts[0].shape[1]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """(R, D): a view where a slice lies in one part, else a copy. Raises IndexError for a row that is not there."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            return self._between(start, stop) if step == 1 else self[np.arange(start, stop, step)]
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(f"expected a slice or an array (R,) of rows, got {rows.dtype} of shape {rows.shape}")
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):  # -1 is no document here, never the last one
            raise IndexError(f"rows {rows.min()} to {rows.max()} asked for, of {len(self)} vectors")
        vectors = np.empty((len(rows), self.shape[1]), np.float32)
        owners = np.searchsorted(self._starts[1:], rows, side="right")
        for owner in np.unique(owners):
            here = owners == owner
            vectors[here] = self.parts[owner][rows[here] - self._starts[owner]]
        return vectors

    def _between(self, start: int, stop: int) -> np.ndarray:
        spans = [slice(max(start - first, 0), max(stop - first, 0)) for first in self._starts[:-1].tolist()]
        pieces = [piece for part, span in zip(self.parts, spans, strict=True) if len(piece := part[span])]
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty((0, self.shape[1]), np.float32), *pieces])


def encode_shards(
    folder: Path,
    key: dict,
    encoder: Encoder,
    tokens: TokenStore,
    side: Side,
    precision: Precision,
    tokens_per_batch: int,
    label: str,
    world: World,
) -> ShardedVectors:
    """The vectors of every text of `tokens`, kept under `folder`; what an interrupted encoding wrote is kept.

    Called by all processes. `key` says what the vectors are of, as for a VectorStore. Shards of another number of processes stay: a
    trainer and a refresher may share the folder.
    """
    world.once(lambda: folder.mkdir(parents=True, exist_ok=True))
    # A store each: two hosts that write into one file over NFS overwrite each other's bytes, whole pages at a time.
    bounds = shard_bounds(tokens.lengths(encoder.length_tokens(side)), world.size).tolist()
    stores = [
        (folder / name, stop - first, encoder.dimension, {**key, "first": first})
        for name, (first, stop) in zip(_names(world), pairwise(bounds), strict=True)
    ]
    with closing(VectorStore(*stores[world.rank])) as store:
        encode_into(store, encoder, tokens, side, precision, tokens_per_batch, label, bounds[world.rank], world)
    world.meet()
    return ShardedVectors([read_vectors(*one) for one in stores], world.rank)


def has_shards(folder: Path, world: World) -> bool:
    """Whether as many processes as now have begun to encode into `folder`, and most likely have done it."""
    return all((folder / name).exists() for name in _names(world))


def shard_bounds(lengths: np.ndarray, shards: int) -> np.ndarray:
    """(shards + 1,) rows: shard i is rows bounds[i] to bounds[i + 1], of about as many tokens as any other; some may be empty."""
    tokens = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    middles = (tokens[:-1] + tokens[1:]) / 2  # a text goes where most of it lies
    bounds = np.searchsorted(middles, tokens[-1] * np.arange(shards + 1) / shards)
    bounds[-1] = len(lengths)
    return bounds


def _names(world: World) -> list[str]:
    return [f"{rank}-of-{world.size}" for rank in range(world.size)]
