"""Snapshot: the collection as one checkpoint sees it.

Vectors and rankings are computed once, on first use.
"""

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from pyserini_ance.data.collection import Collection, Side, Split
from pyserini_ance.data.known_positives import leave_out
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import AnchorSet, PreparedData
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.config import config_of
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import Precision, resolve_precision
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.llm import Server
from pyserini_ance.recipe.models import Bm25, EmbeddingServer, Encoding, Recipe
from pyserini_ance.storage.files import sha256_json
from pyserini_ance.storage.publish import check_cache, leased, remove_unless_leased
from pyserini_ance.vectors import embedding_server, ray_tasks
from pyserini_ance.vectors import search as exact
from pyserini_ance.vectors.encoding import ShardedVectors, encode_shards, encode_some
from pyserini_ance.vectors.faiss_index import FLAT, FactoryIndex, make_index, size_bytes
from pyserini_ance.vectors.sharded_search import search_shards
from pyserini_ance.vectors.topk import ScoresAndRows

if TYPE_CHECKING:
    from pyserini_ance.runs.checkpoint import Checkpoint
    from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)
TEACHER_VECTORS = "teacher"  # prefix of the folders of other encoders' document vectors, as `vectors_folder`
PAIRS_PER_BLOCK = 65_536
ScoredRows = tuple[np.ndarray, np.ndarray]  # scores (A, k) float32 and rows (A, k) int32, best first
Searched = Literal["query", "document", "passage"]  # the rows that a search finds


@dataclass(eq=False)
class Snapshot:
    """The vectors and rankings of one checkpoint over the prepared data.

    All processes of `world` make the same calls in the same order, share the work, and get the same results,
    except of a search, in which each gets those of its own rows.

    model: the checkpoint's encoder folder. weights: the hash of its weights.
    scratch: the folder of document vectors, one folder per document tower and precision; other checkpoints
        with the same document tower use the same vectors.
    document_weights: the hash of the document tower's weights (default: `weights`).
    cache: the folder where teachers keep scores; None: filters cannot ask a teacher. bm25: how BM25 ranks.
    teachers: the folder of the cross-encoders that the run trains; None: there is no run.
    seconds: the time spent by part, waiting for other processes included: load, encode_documents,
        encode_queries, build (of an index) and search.
    judges: what the teachers that filters asked have scored with, as `TeacherContext.origins`.
    corrected: the vectors that negatives are mined from in place of `document_vectors`.
    """

    model: Path
    weights: str
    data: PreparedData
    encoding: Encoding
    scratch: Path
    device: str
    world: World
    document_weights: str = ""
    cache: Path | None = None
    bm25: Bm25 | None = None
    teachers: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    judges: dict[str, str] = field(default_factory=dict)
    corrected: ShardedVectors | None = None

    @classmethod
    def of(
        cls,
        checkpoint: "Checkpoint",
        data: PreparedData,
        recipe: Recipe,
        run: "RunDir",
        world: World,
        encoding: Encoding | None = None,
    ) -> "Snapshot":
        """A checkpoint of a run, encoded as `encoding` says, by default as the recipe does."""
        model, weights, documents = checkpoint.encoder, checkpoint.weights, checkpoint.document_weights
        encoding = encoding or recipe.encoding
        snapshot = cls(model, weights, data, encoding, run.scratch, world.device, world, documents)
        snapshot.cache, snapshot.bm25, snapshot.teachers = recipe.cache, recipe.bm25, run.teachers
        return snapshot

    @classmethod
    @contextmanager
    def without_run(
        cls, encoder: Encoder, data: PreparedData, encoding: Encoding, cache: Path, world: World
    ) -> Iterator["Snapshot"]:
        """Of an encoder in memory, in the block.

        Document vectors are in `cache` until its end, so that after an error or a kill the call can be
        repeated without encoding them again.
        """
        digest, device = encoder.digest(), str(encoder.device)
        scratch = cache / "mining" / sha256_json([digest, data.identity])[:32]
        model = Path(encoder.config.model)
        snapshot = cls(model, digest, data, encoding, scratch, device, world, cache=cache)
        snapshot.encoder = encoder  # which need not have a folder
        snapshot.tokenization = encoder.config.tokenization
        check_cache(scratch)
        world.on_main(lambda: scratch.parent.mkdir(parents=True, exist_ok=True))
        with leased(scratch):  # another call may use the vectors, too
            yield snapshot
        world.barrier()  # NFS removes no folder in which a process still has a file open
        world.on_main(lambda: remove_unless_leased(scratch))

    def __post_init__(self) -> None:
        self.document_weights = self.document_weights or self.weights
        self.rankings: dict[tuple[Side, Searched, bytes], ScoredRows] = {}  # what was searched before
        self._on_cpu = torch.device(self.device).type == "cpu"
        self._by_torch = exact.resolve_backend(self.encoding.search, self.device) == "torch"

    @property
    def collection(self) -> Collection:
        return self.data.collection

    @property
    def split(self) -> Split:
        return self.data.split

    @property
    def passages(self) -> Passages | None:
        return self.data.passages

    def anchor_set(self, anchor: Side, chunk: np.ndarray | None = None) -> AnchorSet:
        """Anchors and positives of the training split, restricted to the query rows `chunk` if given."""
        whole = self.data.anchor_sets[anchor]
        return whole if chunk is None else replace(whole, chunk=chunk)

    @cached_property
    def encoder(self) -> Encoder:
        with self.timed("load"):
            return load_encoder(self.model, self.device)

    @cached_property
    def tokenization(self) -> Tokenization:
        """The encoder's tokenization settings, read without loading its weights."""
        return config_of(self.model).tokenization

    @cached_property
    def precision(self) -> Precision:
        """The precision of vectors: `auto` is resolved on rank 0, because precisions must not be mixed."""
        return self.world.on_main(lambda: resolve_precision(self.encoding.precision, self.device))

    @cached_property
    def document_vectors(self) -> ShardedVectors:
        """(N, D) float32 of all passages, memory-mapped. An interrupted encoding is continued."""
        key = {**self.vectors_key, "side": "document"}
        with self.timed("encode_documents"):
            # Another process may encode them by another engine, or in other batches.
            tokens, folder = self.data.documents, self.vectors_folder / sha256_json(key)[:8]
            return self.encode_all(self.encoder, tokens, folder, key, "documents", hold=not self._on_cpu)

    @property
    def mined_vectors(self) -> ShardedVectors:
        """(N, D) float32 of all passages as mining sees them: corrected ones, if there are any."""
        return self.document_vectors if self.corrected is None else self.corrected

    @property
    def vectors_key(self) -> dict[str, Any]:
        """All that the documents' vectors depend on, which other splits of a collection have too."""
        key = {"weights": self.document_weights, "precision": self.precision}
        key |= {"texts": self.data.collection.documents.digest, "tokenization": self.data.tokenization}
        if isinstance(self.encoding.engine, EmbeddingServer):
            key["server"] = self.encoding.engine.model
        return {**key, "tokens_per_batch": self.encoding.tokens_per_batch}

    @property
    def vectors_folder(self) -> Path:
        """The folder of the document vectors, of one document tower in one precision."""
        return self.scratch / f"{self.document_weights[:16]}-{self.precision}"

    @cached_property
    def resident_vectors(self) -> torch.Tensor | None:
        """This process's shard of the document vectors on its device: those that it has just encoded, or a
        copy; None if a GPU lacks the room."""
        vectors = self.document_vectors
        if vectors.held is not None:
            return vectors.held
        has_room = exact.has_room(vectors.own.nbytes, self.device)
        return exact.as_tensor(vectors.own).to(self.device) if has_room else None

    def free_device(self) -> None:
        """Free the vectors that a GPU holds; a search copies them there again."""
        vars(self).pop("resident_vectors", None)
        if "document_vectors" in vars(self):
            self.document_vectors.held = None

    def forget_training_queries(self) -> None:
        """Forget their vectors, all rankings and the corrected vectors."""
        self.rankings.clear()
        self.corrected = None
        vars(self).pop("query_vectors", None)

    @cached_property
    def query_vectors(self) -> np.ndarray:
        """(Q, D) float32 of the training queries."""
        return self.encode_queries(self.data.train_split, np.arange(len(self.data.split.queries)))

    def encode_all(
        self,
        encoder: Encoder,
        tokens: TokenStore,
        folder: Path,
        key: dict,
        label: str,
        hold: bool = False,
        side: Side = "document",
    ) -> ShardedVectors:
        """`encode_shards` by any encoder, with the snapshot's settings."""
        settings = self.precision, self.encoding.tokens_per_batch, label, self.world
        chosen, engine = self.encoding.engine, None
        if chosen == "ray":
            engine = ray_tasks.encode
        elif isinstance(chosen, EmbeddingServer) and encoder is vars(self).get("encoder"):  # no teacher's
            server, adapter = Server(chosen.url, chosen.model), self.vectors_folder / "adapter"
            load = partial(embedding_server.load_adapter, server, self.model, adapter, self.document_weights)
            engine = partial(embedding_server.encode, server._replace(model=self.world.on_main(load)))
        return encode_shards(folder, key, encoder, tokens, side, *settings, hold=hold, engine=engine)

    def encode_some(
        self,
        encoder: Encoder,
        tokens: TokenStore,
        rows: np.ndarray,
        side: Side,
        label: str,
        precision: Precision | None = None,
    ) -> np.ndarray:
        """`encode_some` by any encoder, with the snapshot's settings."""
        precision = precision or self.precision
        budget = self.encoding.tokens_per_batch
        return encode_some(encoder, tokens, rows, side, precision, budget, label, self.world)

    def encode_queries(self, split: str, rows: np.ndarray, precision: Precision | None = None) -> np.ndarray:
        """(R, D) float32 of the queries `rows` (R,) of a split, in `precision` (default: the snapshot's)."""
        tokens = self.data.queries[split]
        with self.timed("encode_queries"):
            return self.encode_some(self.encoder, tokens, rows, "query", f"{split} queries", precision)

    def encode_documents(
        self, rows: np.ndarray, from_all: bool = False
    ) -> tuple[np.ndarray, Passages | None]:
        """The vectors of all passages of the documents `rows`, and which passages belong to which document.

        from_all: take them from the vectors of all documents, which are encoded if they are not there; else
        no other documents are encoded. The last digits differ, so the caller decides, not what is there.
        """
        rows, passages = self.passages.rows(rows) if self.passages else (rows, None)
        if from_all:
            return self.document_vectors[rows], passages
        tokens = self.data.documents
        with self.timed("encode_documents"):
            return self.encode_some(self.encoder, tokens, rows, "document", "sampled documents"), passages

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the seconds of a block to those of a part, but for what the block adds to any part."""
        start, before = time.perf_counter(), sum(self.seconds.values())
        yield
        within = sum(self.seconds.values()) - before
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start - within

    def search(self, side: Side, rows: np.ndarray, over: Searched, k: int) -> ScoredRows:
        """The k nearest rows of the side `over` for each of `rows` (A,) of `side`; a row may find itself.

        A score between the sides is that of the document's best passage, whichever side searches, except
        over passages, whose rows and scores are their own. Documents that rankings leave out are not found by
        their query. All processes make the call, each with its own rows. A ranking that was computed before
        is not computed again.
        """
        key = side, over, hashlib.sha256(np.ascontiguousarray(rows, np.int32)).digest()
        others = self.query_vectors if over == "query" else self.mined_vectors
        k = min(k, len(self.collection.documents) if over == "document" else len(others))
        self.world.barrier()  # the work before may take longer on one process than on another
        if not self.world.all_agree(key in self.rankings and self.rankings[key][0].shape[1] >= k):
            # This process's part of the search for the rows of all processes.
            parts = [part.numpy() for part in self.world.gather(torch.from_numpy(rows.astype(np.int32)))]
            every, shares = np.concatenate(parts), [len(part) for part in parts]
            passages = self.passages if over == "document" else None
            if side == "document":
                self.rankings[key] = self.rank_for_documents(every, others, k, passages, shares)
            else:
                own = self.collection.own_documents(self.split, rows) if over == "document" else None
                self.rankings[key] = self.rank(self.query_vectors[every], others, k, passages, shares, own)
        scores, hits = self.rankings[key]
        return scores[:, :k], hits[:, :k]

    def positive_scores(self, anchor_set: AnchorSet) -> np.ndarray:
        """(A,) float32: the score of each anchor's best known positive."""
        known_positives = anchor_set.known_positives.subset(anchor_set.anchors)
        pairs = np.repeat(anchor_set.anchors, known_positives.counts), known_positives.rows
        queries, documents = pairs if anchor_set.anchor == "query" else pairs[::-1]
        scores = self.score(self.query_vectors, queries, documents)
        return np.maximum.reduceat(scores, known_positives.offsets[:-1])

    def score(self, vectors: np.ndarray, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(P,) float32 scores of pairs: queries (P,), rows of `vectors` (Q, D), and documents (P,). A
        document scores as its best passage."""
        size = max(1, PAIRS_PER_BLOCK // (self.passages.max_passages if self.passages else 1))
        scores = [np.empty(0, np.float32)]
        for start in range(0, len(queries), size):
            block = slice(start, start + size)
            own, rows = vectors[queries[block]], documents[block]
            if self.passages is None:
                scores.append(np.einsum("pd,pd->p", own, self.mined_vectors[rows]))
            else:
                pieces, mask = self.passages.of(rows)
                others = self.mined_vectors[pieces.ravel()].reshape(*pieces.shape, -1)
                scores.append(np.where(mask, np.einsum("pd,pcd->pc", own, others), -np.inf).max(1))
        return np.concatenate(scores)

    def rank_for_documents(
        self,
        rows: np.ndarray,
        others: ShardedVectors | np.ndarray,
        k: int,
        passages: Passages | None = None,
        shares: Sequence[int] | None = None,
    ) -> ScoredRows:
        """The k best of `others` (N, D) for each of the documents `rows` (A,), by the best of its passages.

        `passages` groups the others, as in `rank`; `shares` counts documents of each process.
        """
        if self.passages is None:
            return self.rank(self.mined_vectors[rows], others, k, None, shares)
        pieces, among = self.passages.rows(rows)
        if shares is not None:
            ends = np.cumsum(shares)
            shares = np.diff(among.offsets[ends], prepend=0).tolist()
            among = self.passages.rows(np.split(rows, ends[:-1])[self.world.rank])[1]
        return among.merge(*self.rank(self.mined_vectors[pieces], others, k, passages, shares))

    def rank(
        self,
        queries: np.ndarray,
        documents: ShardedVectors | np.ndarray,
        k: int,
        passages: Passages | None = None,
        shares: Sequence[int] | None = None,
        own: np.ndarray | None = None,
    ) -> ScoredRows:
        """The k best of `documents` (N, D) for each of `queries` (Q, D).

        Returns scores (Q, k) float32 and rows (Q, k) int32. With `passages`, `documents` are the vectors of
        passages, and a document scores as its best passage. With `shares`, the number of queries of each
        process, a process gets only the results of its own. With `own`, the row that the ranking of each of
        these queries leaves out, or PADDING, shorter rankings end with -inf and PADDING.
        """
        if own is not None:
            return leave_out(own, *self.rank(queries, documents, k + 1, passages, shares), k)
        if not isinstance(documents, ShardedVectors):
            documents = ShardedVectors.split(documents, self.world)
        with self.timed("build"):
            are_all = documents is vars(self).get("document_vectors")  # which must not be encoded for this
            # The shard of all documents on the device, if a GPU has the room.
            held = self.resident_vectors if are_all and self._by_torch and not self._on_cpu else None
            shard = self._searcher(documents.own if held is None else held)
        find = partial(search_shards, shard, documents, self.world, shares=shares, takes_long=True)
        search = partial(exact.search_arrays, find)
        with self.timed("search"):
            return search(queries, k) if passages is None else passages.search(search, queries, k)

    def _searcher(self, vectors: np.ndarray | torch.Tensor) -> exact.Searcher:
        return exact.searcher(vectors, self.encoding.search, self.device, self.world)

    def static_index(self, index: str, seed: int) -> exact.Searcher:
        """A search over all documents that is built once and called often.

        index: `flat`, or a Faiss factory string with search settings; a Faiss index is stored in `scratch`,
        next to its vectors. Raises what `make_index` raises.
        """
        vectors = self.document_vectors
        with self.timed("build"):
            if index == FLAT:
                own: np.ndarray | torch.Tensor = vectors.own
                if self._by_torch and (held := self.resident_vectors) is not None:
                    own = held
                elif self._by_torch:
                    log.warning(
                        f"the vectors of the documents ({own.nbytes / 2**30:.1f} GiB) do not fit the free "
                        f"memory of {self.device}: each search copies them there block by block, which is "
                        "slow in a step; more processes share them"
                    )
                search: exact.Searcher = partial(search_shards, self._searcher(own), vectors, self.world)
            else:
                factory, _, settings = index.partition(";")
                folder = self._index_folder(index, seed)
                make_index(folder, vectors, factory, seed, self.vectors_key, self.world, self.device)
                search = FactoryIndex(folder, self.world, settings, self.device)
        if (passages := self.passages) is None:
            return search

        def search_documents(queries: torch.Tensor, k: int) -> ScoresAndRows:
            """As `Passages.search`, with tensors."""
            scores, rows = passages.search(partial(exact.search_arrays, search), queries, k)
            return torch.from_numpy(scores), torch.from_numpy(rows)

        return search_documents

    def _index_folder(self, index: str, seed: int) -> Path:
        name = f"{self.vectors_folder.name}-{sha256_json([index.partition(';')[0], seed])[:12]}"
        return self.vectors_folder.with_name(name)

    def bytes_per_document(self, index: str, seed: int) -> int:
        """The size of what `static_index` has made for `index`, of all passages of a document, on average."""
        size = 4 * int(np.prod(self.document_vectors.shape))
        if index != FLAT:
            size = size_bytes(self._index_folder(index, seed))
        return round(size / len(self.collection.documents))
