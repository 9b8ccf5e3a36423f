"""Encoding a token store into vectors, with progress; only rows that are missing."""

import numpy as np
from tqdm import tqdm

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.encoder import Encoder, Precision
from pyserini_ance.encoders.tokenization import Side
from pyserini_ance.vectors.store import VectorStore


def encode_into(
    store: VectorStore, encoder: Encoder, tokens: TokenStore, side: Side, precision: Precision, tokens_per_batch: int, label: str
) -> None:
    """Write the vector of every text of `tokens` that `store` lacks."""
    rows = store.missing()
    with tqdm(total=len(rows), desc=f"encode {label}", unit="text", leave=False) as bar:
        for done, vectors in encoder.encode_rows(tokens, rows, side, precision, tokens_per_batch):
            store.write(done, vectors)
            bar.update(len(done))


def encode_some(
    encoder: Encoder, tokens: TokenStore, rows: np.ndarray, side: Side, precision: Precision, tokens_per_batch: int, label: str
) -> np.ndarray:
    """Vectors (R, D) float32 of `rows` (distinct), in their order, in memory: for queries and samples."""
    position = np.empty(len(tokens), np.int64)
    position[rows] = np.arange(len(rows))
    vectors = np.empty((len(rows), encoder.dimension), np.float32)
    with tqdm(total=len(rows), desc=f"encode {label}", unit="text", leave=False) as bar:
        for done, block in encoder.encode_rows(tokens, rows, side, precision, tokens_per_batch):
            vectors[position[done]] = block
            bar.update(len(done))
    return vectors
