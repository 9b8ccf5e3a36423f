"""Encoding a token store into vectors, with progress; only rows that are missing."""

import numpy as np
import torch
from tqdm import tqdm

from pyserini_ance.data.collection import Side
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder, Precision
from pyserini_ance.vectors.store import VectorStore

ROWS_PER_GATHER = 4096


def encode_into(
    store: VectorStore,
    encoder: Encoder,
    tokens: TokenStore,
    side: Side,
    precision: Precision,
    tokens_per_batch: int,
    label: str,
    first: int,
    world: World,
) -> None:
    """Write the vectors that `store` lacks; its row 0 is text `first` of `tokens`."""
    rows = store.missing() + first
    with tqdm(total=len(rows), desc=f"encode {label}", unit="text", leave=False, disable=not world.is_main) as bar:
        for done, vectors in encoder.encode_rows(tokens, rows, side, precision, tokens_per_batch):
            world.check()
            store.write(done - first, vectors)
            bar.update(len(done))


def encode_some(
    encoder: Encoder,
    tokens: TokenStore,
    rows: np.ndarray,
    side: Side,
    precision: Precision,
    tokens_per_batch: int,
    label: str,
    world: World,
) -> np.ndarray:
    """Vectors (R, D) float32 of `rows` (distinct), in their order, in memory: for queries and samples.

    Called by all processes: each encodes a share of even length, and has the vectors of all in the end.
    """
    order = np.argsort(-tokens.lengths(encoder.length_tokens(side), rows), kind="stable")
    dealt = [order[rank :: world.size] for rank in range(world.size)]
    own = rows[dealt[world.rank]]
    position = np.empty(len(tokens), np.int64)
    position[own] = np.arange(len(own))
    vectors = np.empty((len(own), encoder.dimension), np.float32)
    with tqdm(total=len(own), desc=f"encode {label}", unit="text", leave=False, disable=not world.is_main) as bar:
        for done, block in encoder.encode_rows(tokens, own, side, precision, tokens_per_batch):
            world.check()
            vectors[position[done]] = block
            bar.update(len(done))
    return _gather_dealt(vectors, dealt, world)


def _gather_dealt(own: np.ndarray, dealt: list[np.ndarray], world: World) -> np.ndarray:
    """(R, D) with each process's vectors at the positions `dealt` to it, in blocks that bound what is in memory twice."""
    world.meet()
    vectors = np.empty((sum(map(len, dealt)), own.shape[1]), np.float32)
    for start in range(0, len(dealt[0]), ROWS_PER_GATHER):  # nobody has more than the first
        block = slice(start, start + ROWS_PER_GATHER)
        for positions, part in zip(dealt, world.gather(torch.from_numpy(own[block])), strict=True):
            vectors[positions[block]] = part.numpy()
    return vectors
