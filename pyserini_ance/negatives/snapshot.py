"""Snapshot: the collection as one checkpoint sees it. Vectors and rankings are made on first use, once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import load_encoder
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.recipe.models import Encoding
from pyserini_ance.vectors.encode import encode_some
from pyserini_ance.vectors.precision import resolve_precision
from pyserini_ance.vectors.search import searcher
from pyserini_ance.vectors.sharded_search import search_shards
from pyserini_ance.vectors.shards import ShardedVectors, encode_shards


class Snapshot:
    """`model` is a checkpoint's encoder folder, `weights` its hash, and `document_weights` that of the document tower
    (default: the same). All processes of `world` make the same calls in the same order, share the work, and have the same results.

    `scratch` holds document vectors, one folder for their tower's weights and precision: whoever looks at a checkpoint with
    the same document tower finds them there. `seconds` records what each part took, waiting for the other processes
    included: load, encode_documents, encode_queries, build (of faiss's index), search.
    """

    def __init__(
        self,
        model: Path,
        weights: str,
        data: PreparedData,
        encoding: Encoding,
        scratch: Path,
        device: str,
        world: World,
        document_weights: str | None = None,
    ):
        self.model, self.weights, self.data, self.encoding = model, weights, data, encoding
        self.document_weights = document_weights or weights
        self.scratch, self.device, self.world = scratch, device, world
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
    def document_vectors(self) -> ShardedVectors:
        """(N, D) float32, memory-mapped; what an interrupted encoding wrote is kept."""
        key = {"weights": self.document_weights, "texts": self.collection.digest, "side": "document", "precision": self.precision}
        folder, budget = vectors_folder(self.scratch, self.document_weights, self.precision), self.encoding.tokens_per_batch
        encoder, documents = self.encoder, self.data.documents
        with self._timed("encode_documents"):
            return encode_shards(folder, key, encoder, documents, "document", self.precision, budget, "documents", self.world)

    @cached_property
    def query_vectors(self) -> np.ndarray:
        """(A, D) float32 of the training queries."""
        return self.encode_queries(self.data.train_split, self.query_rows)

    def encode_queries(self, split: str, rows: np.ndarray, precision: str | None = None) -> np.ndarray:
        """(R, D) float32 of some queries of a split, in the snapshot's precision or another."""
        encoder, precision, budget = self.encoder, precision or self.precision, self.encoding.tokens_per_batch
        with self._timed("encode_queries"):
            return encode_some(encoder, self.data.queries[split], rows, "query", precision, budget, f"{split} queries", self.world)

    def encode_documents(self, rows: np.ndarray) -> np.ndarray:
        """Vectors of some documents, for an evaluation on a sample."""
        if "document_vectors" in vars(self):
            return self.document_vectors[rows]
        encoder, precision, budget = self.encoder, self.precision, self.encoding.tokens_per_batch
        with self._timed("encode_documents"):
            return encode_some(encoder, self.data.documents, rows, "document", precision, budget, "sampled documents", self.world)

    def search(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best documents of every training query: scores (A, k) float32 and rows (A, k) int32."""
        k = min(k, len(self.collection.documents))
        if self.ranking is None or self.ranking[0].shape[1] < k:
            self.ranking = self.rank(self.query_vectors, self.document_vectors, k)
        scores, rows = self.ranking
        return scores[:, :k], rows[:, :k]

    def rank(self, queries: np.ndarray, documents: ShardedVectors | np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of `documents` (N, D) for each of `queries` (Q, D): scores (Q, k) float32 and rows (Q, k) int32."""
        if not isinstance(documents, ShardedVectors):
            documents = ShardedVectors.split(documents, self.world)
        with self._timed("build"):
            own = searcher(documents.own, self.encoding.search, self.device, self.world)
        with self._timed("search"):
            return search_shards(own, queries, documents, k, self.world)

    @cached_property
    def precision(self) -> str:
        """What `auto` means on the first process, for all: vectors of two precisions are not compared."""
        return self.world.once(lambda: resolve_precision(self.encoding.precision, self.device))

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


def vectors_folder(scratch: Path, document_weights: str, precision: str) -> Path:
    return scratch / f"{document_weights[:16]}-{precision}"
