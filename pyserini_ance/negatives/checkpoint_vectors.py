"""CheckpointVectors: the vectors that one checkpoint gives the prepared data, computed on first use."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import Precision, resolve_precision
from pyserini_ance.encoders.load_save import family_of, load_encoder
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.recipe.models import Encoding, Recipe
from pyserini_ance.vectors.encoding import ShardedVectors, encode_shards, encode_some, has_shards
from pyserini_ance.vectors.search import fits, resident

TEACHER_VECTORS = "teacher"  # prefix of the folders of other encoders' document vectors, as `vectors_folder`


class CheckpointVectors:
    """The vectors of one checkpoint over the prepared data.

    All processes of `world` make the same calls in the same order, share the work, and get the same vectors.

    model: the checkpoint's encoder folder. weights: the hash of its weights.
    document_weights: the hash of the document tower's weights (default: `weights`).
    recipe: the recipe that the vectors serve, which teachers read; None: filters cannot ask a teacher.
    teachers: the folder of the cross-encoders that the run trains; None: there is no run.
    scratch: the folder of document vectors, one folder per document tower and precision; other checkpoints
        with the same document tower use the same vectors.
    seconds: the time spent by part, waiting for other processes included: load, encode_documents,
        encode_queries, and in a Snapshot build (of an index) and search.
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
        recipe: Recipe | None = None,
        teachers: Path | None = None,
    ):
        self.recipe, self.teachers = recipe, teachers
        self.model, self.weights, self.data, self.encoding = model, weights, data, encoding
        self.document_weights = document_weights or weights
        self.scratch, self.device, self.world = scratch, device, world
        self.seconds: dict[str, float] = {}

    @cached_property
    def encoder(self) -> Encoder:
        with self.timed("load"):
            return load_encoder(self.model, self.device)

    @cached_property
    def tokenization(self) -> Tokenization:
        """The encoder's tokenization settings, read without loading its weights."""
        return family_of(self.model).tokenization

    @cached_property
    def document_vectors(self) -> ShardedVectors:
        """(N, D) float32 of all passages, memory-mapped. An interrupted encoding is continued."""
        key = {
            "weights": self.document_weights,
            "texts": self.data.collection.digest,
            "side": "document",
            "precision": self.precision,
        }
        encoder = self.encoder
        with self.timed("encode_documents"):
            return encode_shards(
                self._vectors_folder,
                key,
                encoder,
                self.data.documents,
                "document",
                self.precision,
                self.encoding.tokens_per_batch,
                "documents",
                self.world,
                hold=not self._on_cpu,
            )

    @cached_property
    def resident_vectors(self) -> torch.Tensor | None:
        """This process's shard of the document vectors on its device: those that it has just encoded, or a
        copy; None if a GPU lacks the room."""
        vectors = self.document_vectors
        if vectors.held is not None:
            return vectors.held
        return resident(vectors.own, self.device) if fits(vectors.own, self.device) else None

    def free_device(self) -> None:
        """Free the vectors that a GPU holds; a search copies them there again."""
        vars(self).pop("resident_vectors", None)
        if "document_vectors" in vars(self):
            self.document_vectors.held = None

    @property
    def _on_cpu(self) -> bool:
        return torch.device(self.device).type == "cpu"

    @cached_property
    def query_vectors(self) -> np.ndarray:
        """(Q, D) float32 of the training queries."""
        return self.encode_queries(self.data.train_split, np.arange(len(self.data.split.queries)))

    def encode_queries(self, split: str, rows: np.ndarray, precision: Precision | None = None) -> np.ndarray:
        """(R, D) float32 of the queries `rows` (R,) of a split, in `precision` (default: the snapshot's)."""
        encoder, precision = self.encoder, precision or self.precision
        with self.timed("encode_queries"):
            return encode_some(
                encoder,
                self.data.queries[split],
                rows,
                "query",
                precision,
                self.encoding.tokens_per_batch,
                f"{split} queries",
                self.world,
            )

    def encode_documents(self, rows: np.ndarray) -> tuple[np.ndarray, Passages | None]:
        """The vectors of all passages of the documents `rows`, and which passages belong to which document.

        Serves evaluations on a sample: other documents are not encoded.
        """
        rows, passages = self.data.rows_of(rows)
        folder = self._vectors_folder
        # Another checkpoint with the same document tower may have encoded all documents.
        if "document_vectors" in vars(self) or self.world.on_main(lambda: has_shards(folder, self.world)):
            return self.document_vectors[rows], passages
        encoder, precision = self.encoder, self.precision
        with self.timed("encode_documents"):
            vectors = encode_some(
                encoder,
                self.data.documents,
                rows,
                "document",
                precision,
                self.encoding.tokens_per_batch,
                "sampled documents",
                self.world,
            )
        return vectors, passages

    @cached_property
    def precision(self) -> Precision:
        """The precision of vectors: `auto` is resolved on rank 0, because precisions must not be mixed."""
        return self.world.on_main(lambda: resolve_precision(self.encoding.precision, self.device))

    @property
    def _vectors_folder(self) -> Path:
        return vectors_folder(self.scratch, self.document_weights, self.precision)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the seconds of a block to those of a part, but for what the block adds to any part."""
        start, before = time.perf_counter(), sum(self.seconds.values())
        yield
        within = sum(self.seconds.values()) - before
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start - within


def vectors_folder(scratch: Path, document_weights: str, precision: str) -> Path:
    """The folder of document vectors of one document tower in one precision."""
    return scratch / f"{document_weights[:16]}-{precision}"
