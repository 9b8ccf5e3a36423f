"""Snapshot: the collection as one checkpoint sees it. Vectors and rankings are made on first use, once."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from pyserini_ance.data.collection import Collection, Side, Split
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import family_of, load_encoder
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.recipe.models import Encoding
from pyserini_ance.storage.files import sha256_json
from pyserini_ance.vectors.encode import encode_some
from pyserini_ance.vectors.index import FLAT, FactoryIndex, factory_and_search, make_index
from pyserini_ance.vectors.precision import resolve_precision
from pyserini_ance.vectors.search import Searcher, searcher, standing
from pyserini_ance.vectors.sharded_search import search_shards
from pyserini_ance.vectors.shards import ShardedVectors, encode_shards, has_shards
from pyserini_ance.vectors.standing import FlatSearch

PAIRS_PER_BLOCK = 65_536
Ranking = tuple[np.ndarray, np.ndarray]  # scores (A, k) float32 and rows (A, k) int32, best first


class Snapshot:
    """`model` is a checkpoint's encoder folder, `weights` its hash, and `document_weights` that of the document tower
    (default: the same). All processes of `world` make the same calls in the same order, share the work, and have the same results.

    `scratch` holds document vectors, one folder for their tower's weights and precision: whoever looks at a checkpoint with
    the same document tower finds them there. `seconds` records what each part took, waiting for the other processes
    included: load, encode_documents, encode_queries, build (of an index), search.
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
        self._rankings: dict[tuple, Ranking] = {}
        self._chunk: np.ndarray | None = None

    @property
    def collection(self) -> Collection:
        return self.data.collection

    @property
    def split(self) -> Split:
        return self.data.split

    @property
    def passages(self) -> Passages | None:
        return self.data.passages

    @property
    def run_files(self) -> dict[str, Path]:
        return self.data.run_files

    def direction(self, anchor: Side) -> Direction:
        """Of the training queries and their relevant documents; within `only`, of a chunk of them."""
        whole = self.data.directions[anchor]
        return replace(whole, chunk=self._chunk) if self._chunk is not None else whole

    @contextmanager
    def only(self, chunk: np.ndarray | None) -> Iterator[None]:
        """Meanwhile, only these rows of the training queries, or their relevant documents, are anchors."""
        self._chunk = chunk
        try:
            yield
        finally:
            self._chunk = None

    @cached_property
    def encoder(self) -> Encoder:
        with self._timed("load"):
            return load_encoder(self.model, self.device)

    @cached_property
    def tokenization(self) -> Tokenization:
        """How the encoder reads texts, without loading it."""
        return family_of(self.model).tokenization

    @cached_property
    def document_vectors(self) -> ShardedVectors:
        """(N, D) float32 of all passages, memory-mapped; what an interrupted encoding wrote is kept."""
        key = {"weights": self.document_weights, "texts": self.collection.digest, "side": "document", "precision": self.precision}
        folder, budget = vectors_folder(self.scratch, self.document_weights, self.precision), self.encoding.tokens_per_batch
        encoder, documents = self.encoder, self.data.documents
        with self._timed("encode_documents"):
            return encode_shards(folder, key, encoder, documents, "document", self.precision, budget, "documents", self.world)

    @cached_property
    def standing_vectors(self) -> torch.Tensor:
        """This process's part of them, on its device to stay."""
        return standing(self.document_vectors.own, self.device)

    @cached_property
    def query_vectors(self) -> np.ndarray:
        """(A, D) float32 of the training queries."""
        return self.encode_queries(self.data.train_split, np.arange(len(self.split.queries)))

    def vectors(self, side: Side) -> ShardedVectors | np.ndarray:
        """Of all training queries, or of all documents."""
        return self.query_vectors if side == "query" else self.document_vectors

    def encode_queries(self, split: str, rows: np.ndarray, precision: str | None = None) -> np.ndarray:
        """(R, D) float32 of some queries of a split, in the snapshot's precision or another."""
        encoder, precision, budget = self.encoder, precision or self.precision, self.encoding.tokens_per_batch
        with self._timed("encode_queries"):
            return encode_some(encoder, self.data.queries[split], rows, "query", precision, budget, f"{split} queries", self.world)

    def encode_documents(self, rows: np.ndarray) -> tuple[np.ndarray, Passages | None]:
        """Vectors of some documents' passages, for an evaluation on a sample, and which are of which of them."""
        rows, passages = self.data.rows_of(rows)
        folder = vectors_folder(self.scratch, self.document_weights, self.precision)
        if "document_vectors" in vars(self) or self.world.once(lambda: has_shards(folder, self.world)):  # another with the same tower
            return self.document_vectors[rows], passages
        encoder, precision, budget = self.encoder, self.precision, self.encoding.tokens_per_batch
        with self._timed("encode_documents"):
            vectors = encode_some(encoder, self.data.documents, rows, "document", precision, budget, "sampled documents", self.world)
        return vectors, passages

    def search(self, side: Side, rows: np.ndarray, over: Side, k: int) -> Ranking:
        """The k nearest of all training queries, or of all documents, to `rows` (A,) of `side`; themselves included. Between
        the sides a score is that of a document's best passage, whichever of them searches.

        Called by all processes; what was found before is not searched again.
        """
        key = _key(side, rows, over)
        k = min(k, len(self.collection.documents if over == "document" else self.split.queries))
        if key not in self._rankings or self._rankings[key][0].shape[1] < k:
            if (side, over) == ("document", "query"):
                self._rankings[key] = self.rank_for_documents(rows, self.query_vectors, k)
            else:
                passages = self.passages if over == "document" else None
                self._rankings[key] = self.rank(self.vectors(side)[rows], self.vectors(over), k, passages)
        scores, found = self._rankings[key]
        return scores[:, :k], found[:, :k]

    def ranking(self, anchor: Side) -> Ranking | None:
        """What was found for all anchors of a direction, as deep as it was searched; None when nobody has."""
        direction = self.direction(anchor)
        return self._rankings.get(_key(anchor, direction.anchors, direction.candidate))

    def positive_scores(self, anchor: Side) -> np.ndarray:
        """(A,) float32: the score of each anchor's best known positive."""
        direction = self.direction(anchor)
        relation = direction.relation.subset(direction.anchors)
        pairs = np.repeat(direction.anchors, relation.counts), relation.rows
        queries, documents = pairs if anchor == "query" else pairs[::-1]
        return np.maximum.reduceat(self.score(self.query_vectors, queries, documents), relation.offsets[:-1])

    def score(self, vectors: np.ndarray, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(P,) float32 of pairs of queries (P,), rows of `vectors` (Q, D), and documents (P,): each that of the document's best passage."""
        size = PAIRS_PER_BLOCK // (self.passages.most if self.passages else 1)
        blocks = [slice(start, start + size) for start in range(0, len(queries), size)]
        return np.concatenate([np.empty(0, np.float32), *(self._scores(vectors[queries[block]], documents[block]) for block in blocks)])

    def _scores(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(P,) of pairs of vectors (P, D) and documents (P,)."""
        if self.passages is None:
            return np.einsum("pd,pd->p", queries, self.document_vectors[documents])
        pieces, there = self.passages.of(documents)
        vectors = self.document_vectors[pieces.ravel()].reshape(*pieces.shape, -1)
        return np.where(there, np.einsum("pd,pcd->pc", queries, vectors), -np.inf).max(1)

    def rank_for_documents(self, rows: np.ndarray, queries: np.ndarray, k: int) -> Ranking:
        """The other direction: the k best of `queries` (N, D) for each of some documents (A,), all of whose passages search."""
        if self.passages is None:
            return self.rank(self.document_vectors[rows], queries, k)
        pieces, passages = self.passages.rows(rows)
        return passages.merge(*self.rank(self.document_vectors[pieces], queries, k))

    def rank(self, queries: np.ndarray, documents: ShardedVectors | np.ndarray, k: int, passages: Passages | None = None) -> Ranking:
        """The k best of `documents` (N, D) for each of `queries` (Q, D): scores (Q, k) float32 and rows (Q, k) int32.

        With `passages`, `documents` are theirs, and a document scores what its best passage does.
        """
        if not isinstance(documents, ShardedVectors):
            documents = ShardedVectors.split(documents, self.world)
        with self._timed("build"):
            own = self._searcher(documents.own)
        with self._timed("search"):
            search = partial(self._search_shards, own, documents)
            return search(queries, k) if passages is None else passages.search(search, queries, k)

    def _searcher(self, vectors: np.ndarray | torch.Tensor) -> Searcher:
        return searcher(vectors, self.encoding.search, self.device, self.world, self.encoding.documents_per_block)

    def _search_shards(self, own: Searcher, documents: ShardedVectors, queries: np.ndarray, k: int) -> Ranking:
        return search_shards(own, queries, documents, k, self.world)

    def standing_search(self, index: str, seed: int) -> Searcher:
        """Search over all documents that is made once and asked often: `flat`, or by the Faiss index that a factory string describes
        (with its search settings), kept in `scratch` beside the vectors that it is of. Raises as `make_index` does.
        """
        vectors = self.document_vectors
        with self._timed("build"):
            search = self._standing_search(index, seed, vectors)
        return search if self.passages is None else partial(self.passages.search, search)

    def _standing_search(self, index: str, seed: int, vectors: ShardedVectors) -> Searcher:
        if index == FLAT:
            own = self.standing_vectors if self.encoding.search == "torch" else vectors.own
            return FlatSearch(vectors, self._searcher(own), self.world)
        factory, search = factory_and_search(index)
        name = f"{vectors_folder(self.scratch, self.document_weights, self.precision).name}-{sha256_json([factory, seed])[:12]}"
        about = {"weights": self.document_weights, "texts": self.collection.digest, "precision": self.precision}
        make_index(self.scratch / name, vectors, factory, seed, about, self.world)
        return FactoryIndex(self.scratch / name, self.world, search)

    @cached_property
    def precision(self) -> str:
        """What `auto` means on the first process, for all: vectors of two precisions are not compared."""
        return self.world.once(lambda: resolve_precision(self.encoding.precision, self.device))

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


def _key(side: Side, rows: np.ndarray, over: Side) -> tuple:
    return side, over, hashlib.sha256(np.ascontiguousarray(rows, np.int32)).digest()


def vectors_folder(scratch: Path, document_weights: str, precision: str) -> Path:
    return scratch / f"{document_weights[:16]}-{precision}"
