"""Snapshot: the collection as one checkpoint sees it.

Vectors and rankings are computed once, on first use.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from pyserini_ance.data.collection import Collection, Side, Split
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.string_arrays import release
from pyserini_ance.negatives.checkpoint_vectors import CheckpointVectors
from pyserini_ance.storage.files import sha256_json
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.faiss_index import FLAT, FactoryIndex, factory_and_search, make_index
from pyserini_ance.vectors.search import Searcher, resolve_backend, search_arrays, searcher
from pyserini_ance.vectors.sharded_search import FlatIndex, search_shards

log = logging.getLogger(__name__)
PAIRS_PER_BLOCK = 65_536
MAPPED_BYTES_PER_ROW = 1 << 21  # a page of a file may bring up to 2 MiB with it
Ranking = tuple[np.ndarray, np.ndarray]  # scores (A, k) float32 and rows (A, k) int32, best first
Searched = Literal["query", "document", "passage"]  # the rows that a search finds
RankingKey = tuple[Side, Searched, bytes]


class Snapshot(CheckpointVectors):
    """The vectors and rankings of one checkpoint over the prepared data.

    All processes get the same results, except of a search, in which each gets those of its own rows.
    """

    @cached_property
    def _rankings(self) -> dict[RankingKey, Ranking]:
        """What was searched before."""
        return {}

    @cached_property
    def judges(self) -> dict[str, str]:
        """What the teachers that filters asked have scored with, as `TeacherContext.origins`."""
        return {}

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

    def anchor_set(self, anchor: Side, chunk: np.ndarray | None = None) -> AnchorSet:
        """Anchors and positives of the training split, restricted to the query rows `chunk` if given."""
        whole = self.data.anchor_sets[anchor]
        return whole if chunk is None else replace(whole, chunk=chunk)

    def vectors(self, side: Searched) -> ShardedVectors | np.ndarray:
        """The vectors of all training queries, or of all documents (their passages)."""
        return self.query_vectors if side == "query" else self.document_vectors

    def search(self, side: Side, rows: np.ndarray, over: Searched, k: int) -> Ranking:
        """The k nearest rows of the side `over` for each of `rows` (A,) of `side`; a row may find itself.

        A score between the sides is that of the document's best passage, whichever side searches, except
        over passages, whose rows and scores are their own. All processes make the call, each with its own
        rows. A ranking that was computed before is not computed again.
        """
        key = _key(side, rows, over)
        k = min(k, self._count(over))
        self.world.barrier()  # the work before may take longer on one process than on another
        if not self.world.all_agree(key in self._rankings and self._rankings[key][0].shape[1] >= k):
            self._rankings[key] = self._search(side, rows, over, k)
        scores, hits = self._rankings[key]
        return scores[:, :k], hits[:, :k]

    def search_passages(self, rows: np.ndarray, k: int) -> Ranking:
        """The documents of the k nearest passages for each of the query `rows` (A,), by their best passage.

        Rankings of fewer than k documents end with -inf and PADDING. All processes make the call.
        """
        if self.passages is None:
            return self.search("query", rows, "document", k)
        return self.passages.of_ranking(*self.search("query", rows, "passage", k))

    def _count(self, over: Searched) -> int:
        if over == "passage" and self.passages is not None:
            return int(self.passages.offsets[-1])
        return len(self.split.queries if over == "query" else self.collection.documents)

    def _search(self, side: Side, rows: np.ndarray, over: Searched, k: int) -> Ranking:
        """This process's part of the search for the rows of all processes."""
        parts = [part.numpy() for part in self.world.gather(torch.from_numpy(rows.astype(np.int32)))]
        every, shares = np.concatenate(parts), [len(part) for part in parts]
        passages = self.passages if over == "document" else None
        if side == "document":
            return self.rank_for_documents(every, self.vectors(over), k, passages, shares)
        return self.rank(self.query_vectors[every], self.vectors(over), k, passages, shares)

    def forget_training_queries(self) -> None:
        """Free the vectors and rankings of the training queries, which only mining needs."""
        self._rankings.clear()
        vars(self).pop("query_vectors", None)

    def positive_scores(self, anchor_set: AnchorSet) -> np.ndarray:
        """(A,) float32: the score of each anchor's best known positive."""
        known_positives = anchor_set.known_positives.subset(anchor_set.anchors)
        pairs = np.repeat(anchor_set.anchors, known_positives.counts), known_positives.rows
        queries, documents = pairs if anchor_set.anchor == "query" else pairs[::-1]
        return np.maximum.reduceat(
            self.score(self.query_vectors, queries, documents), known_positives.offsets[:-1]
        )

    def score(self, vectors: np.ndarray, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(P,) float32 scores of pairs: queries (P,), rows of `vectors` (Q, D), and documents (P,).

        A document scores as its best passage.
        """
        size = self._pairs_per_block(vectors.shape[1])
        scores = [np.empty(0, np.float32)]
        for start in range(0, len(queries), size):
            block = slice(start, start + size)
            scores.append(self._scores(vectors[queries[block]], documents[block]))
            if self.encoding.memory_gib:
                release(*self.document_vectors.shards)
        return np.concatenate(scores)

    def _pairs_per_block(self, dimension: int) -> int:
        pairs, memory_gib = PAIRS_PER_BLOCK, self.encoding.memory_gib
        if memory_gib:
            pairs = min(pairs, int(memory_gib * 2**30) // (MAPPED_BYTES_PER_ROW + 8 * dimension))
        return max(1, pairs // (self.passages.max_passages if self.passages else 1))

    def _scores(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(P,) scores of pairs of query vectors (P, D) and documents (P,)."""
        if self.passages is None:
            return np.einsum("pd,pd->p", queries, self.document_vectors[documents])
        pieces, mask = self.passages.of(documents)
        vectors = self.document_vectors[pieces.ravel()].reshape(*pieces.shape, -1)
        return np.where(mask, np.einsum("pd,pcd->pc", queries, vectors), -np.inf).max(1)

    def rank_for_documents(
        self,
        rows: np.ndarray,
        others: ShardedVectors | np.ndarray,
        k: int,
        passages: Passages | None = None,
        shares: Sequence[int] | None = None,
    ) -> Ranking:
        """The k best of `others` (N, D) for each of the documents `rows` (A,), by the best of its passages.

        `passages` groups the others, as in `rank`; `shares` counts documents of each process.
        """
        if self.passages is None:
            return self.rank(self.document_vectors[rows], others, k, None, shares)
        pieces, among = self.passages.rows(rows)
        if shares is not None:
            ends = np.cumsum(shares)
            shares = np.diff(among.offsets[ends], prepend=0).tolist()
            among = self.passages.rows(np.split(rows, ends[:-1])[self.world.rank])[1]
        return among.merge(*self.rank(self.document_vectors[pieces], others, k, passages, shares))

    def rank(
        self,
        queries: np.ndarray,
        documents: ShardedVectors | np.ndarray,
        k: int,
        passages: Passages | None = None,
        shares: Sequence[int] | None = None,
    ) -> Ranking:
        """The k best of `documents` (N, D) for each of `queries` (Q, D).

        Returns scores (Q, k) float32 and rows (Q, k) int32. With `passages`, `documents` are the vectors of
        passages, and a document scores as its best passage. With `shares`, the number of queries of each
        process, a process gets only the results of its own.
        """
        if not isinstance(documents, ShardedVectors):
            documents = ShardedVectors.split(documents, self.world)
        with self.timed("build"):
            own = self._searcher(self._own(documents))

        def search(queries: np.ndarray, k: int) -> Ranking:
            return search_shards(own, queries, documents, k, self.world, shares)

        with self.timed("search"):
            return search(queries, k) if passages is None else passages.search(search, queries, k)

    def _own(self, documents: ShardedVectors) -> np.ndarray | torch.Tensor:
        """This process's shard; that of all documents on the device, if a GPU has the room."""
        are_all = documents is vars(self).get("document_vectors")  # which must not be encoded for this
        held = self.resident_vectors if are_all and self._by_torch and not self._on_cpu else None
        return documents.own if held is None else held

    @property
    def _by_torch(self) -> bool:
        return resolve_backend(self.encoding.search, self.device) == "torch"

    def _searcher(self, vectors: np.ndarray | torch.Tensor, is_repeated: bool = False) -> Searcher:
        settings = self.encoding
        return searcher(
            vectors,
            settings.search,
            self.device,
            self.world,
            memory_gib=settings.memory_gib,
            is_repeated=is_repeated,
        )

    def static_index(self, index: str, seed: int) -> Searcher:
        """A search over all documents that is built once and called often.

        index: `flat`, or a Faiss factory string with search settings; a Faiss index is stored in `scratch`,
        next to its vectors. Raises what `make_index` raises.
        """
        vectors = self.document_vectors
        with self.timed("build"):
            search = self._static_index(index, seed, vectors)
        return search if self.passages is None else partial(_search_documents, search, self.passages)

    def _static_index(self, index: str, seed: int, vectors: ShardedVectors) -> Searcher:
        if index == FLAT:
            is_bounded = self.encoding.memory_gib and self._on_cpu
            own = self.resident_vectors if self._by_torch and not is_bounded else None
            if own is None and self._by_torch and not is_bounded:
                log.warning(
                    "the vectors of the documents (%.1f GiB) do not fit the free memory of %s: each search "
                    "copies them there block by block, which is slow in a step; more processes share them",
                    vectors.own.nbytes / 2**30,
                    self.device,
                )
            own_search = self._searcher(vectors.own if own is None else own, is_repeated=True)
            return FlatIndex(vectors, own_search, self.world)
        factory, search = factory_and_search(index)
        name = f"{self._vectors_folder.name}-{sha256_json([factory, seed])[:12]}"
        about = {
            "weights": self.document_weights,
            "texts": self.collection.digest,
            "precision": self.precision,
        }
        make_index(self.scratch / name, vectors, factory, seed, about, self.world, self.device)
        return FactoryIndex(self.scratch / name, self.world, search, self.device)


def _search_documents(
    search: Searcher, passages: Passages, queries: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Search documents with a search of passages, as `Passages.search` does, with tensors."""
    k = min(k, len(passages))
    scores, rows = passages.best(*search_arrays(search, queries, k * passages.max_passages), k)
    return torch.from_numpy(scores), torch.from_numpy(rows)


def _key(side: Side, rows: np.ndarray, over: Searched) -> RankingKey:
    return side, over, hashlib.sha256(np.ascontiguousarray(rows, np.int32)).digest()
