"""Snapshot: the collection as one checkpoint sees it. Vectors and rankings are made on first use, once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.encoders.checkpoint import load_encoder
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.recipe.models import Encoding
from pyserini_ance.vectors.encode import encode_into, encode_some
from pyserini_ance.vectors.precision import resolve_precision
from pyserini_ance.vectors.search import exact_search
from pyserini_ance.vectors.store import VectorStore


class Snapshot:
    """`model` is a checkpoint's encoder folder and `weights` its hash.

    `scratch` holds document vectors, one folder for weights and precision: whoever looks at the same checkpoint again
    finds them there. `seconds` records what each part took: load, encode_documents, encode_queries, search.
    """

    def __init__(self, model: Path, weights: str, data: PreparedData, encoding: Encoding, scratch: Path, device: str):
        self.model, self.weights, self.data, self.encoding = model, weights, data, encoding
        self.scratch, self.device = scratch, device
        self.seconds: dict[str, float] = {}
        self.ranking: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def collection(self) -> Collection:
        return self.data.collection

    @property
    def split(self) -> Split:
        return self.data.split

    @property
    def run_files(self) -> dict[str, Path]:
        return self.data.run_files

    @property
    def query_rows(self) -> np.ndarray:
        """(A,) every training query."""
        return np.arange(len(self.split.queries), dtype=np.int32)

    @cached_property
    def most_positives(self) -> int:
        """Known positives of the query that has most: how many more to fetch so that enough negatives are left."""
        return int(np.diff(self.split.qrels.relevant_offsets).max())

    @cached_property
    def encoder(self) -> Encoder:
        with self._timed("load"):
            return load_encoder(self.model, self.device)

    @cached_property
    def document_vectors(self) -> np.ndarray:
        """(N, D) float32, memory-mapped; what an interrupted encoding wrote is kept."""
        key = {"weights": self.weights, "texts": self.collection.digest, "side": "document", "precision": self.precision}
        folder = vectors_folder(self.scratch, self.weights, self.precision)
        store = VectorStore(folder, len(self.data.documents), self.encoder.dimension, key)
        with self._timed("encode_documents"):
            encode_into(store, self.encoder, self.data.documents, "document", self.precision, self.encoding.tokens_per_batch, "documents")
        store.close()
        return store.read()

    @cached_property
    def query_vectors(self) -> np.ndarray:
        """(A, D) float32 of the training queries."""
        return self.encode_queries(self.data.train_split, self.query_rows)

    def encode_queries(self, split: str, rows: np.ndarray, precision: str | None = None) -> np.ndarray:
        """(R, D) float32 of some queries of a split, in the snapshot's precision or another."""
        precision, budget = precision or self.precision, self.encoding.tokens_per_batch
        with self._timed("encode_queries"):
            return encode_some(self.encoder, self.data.queries[split], rows, "query", precision, budget, f"{split} queries")

    def encode_documents(self, rows: np.ndarray) -> np.ndarray:
        """Vectors of some documents, for an evaluation on a sample."""
        if "document_vectors" in vars(self):
            return self.document_vectors[rows]
        with self._timed("encode_documents"):
            budget = self.encoding.tokens_per_batch
            return encode_some(self.encoder, self.data.documents, rows, "document", self.precision, budget, "sampled documents")

    def search(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents of every training query: scores (A, k) float32 and rows (A, k) int32."""
        k = min(k, len(self.collection.documents))
        if self.ranking is None or self.ranking[0].shape[1] < k:
            queries, documents = self.query_vectors, self.document_vectors
            with self._timed("search"):
                self.ranking = exact_search(queries, documents, k, self.encoding.search, self.device)
        scores, rows = self.ranking
        return scores[:, :k], rows[:, :k]

    @property
    def precision(self) -> str:
        """What `auto` means here."""
        return resolve_precision(self.encoding.precision, self.device)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


def vectors_folder(scratch: Path, weights: str, precision: str) -> Path:
    return scratch / f"{weights[:16]}-{precision}"
