"""From a batch's rows to gradients on the towers: encode with gradients, then backward, plain or by
GradCache.

Every text of a chunk is encoded once, on one process, in length-sorted batches and with reproducible dropout.
The vectors are gathered on all processes, so that each computes the loss of the whole chunk and passes back
the gradients of the texts that it encoded.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch

from pyserini_ance.data.collection import Side
from pyserini_ance.data.known_positives import KnownPositives
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.batching import training_batches
from pyserini_ance.encoders.encoder import Encoder, padded_batch, to_device
from pyserini_ance.encoders.towers import TwoTower
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer.batch import Batch
from pyserini_ance.trainer.dropout import recomputes, reproducible_dropout
from pyserini_ance.trainer.frozen_documents import FrozenDocuments

# Tokens whose activations a process keeps at once, unless a recipe says otherwise: 13 GiB of RoBERTa-base in
# bf16. They are several batches of documents: the small batch of queries that each chunk adds costs little.
TOKENS_PER_CHUNK = 32_768
NONE, FIRST = np.empty(0, np.int64), np.zeros(1, np.int64)  # positions, rows


@dataclass(frozen=True)
class TextBatch:
    """Texts of one side to encode: rows (U,) of a token store, at most `texts_per_chunk` at a time.

    fillers: how many more chunks there are, of one text whose vector is not used.
    """

    side: Side
    tokens: TokenStore
    rows: np.ndarray
    length_tokens: int
    texts_per_chunk: int | None = None
    fillers: int = 0

    @property
    def lengths(self) -> np.ndarray:
        return self.tokens.lengths(self.length_tokens, self.rows)


@dataclass(frozen=True)
class ChunkedEncoder:
    """Runs texts through the towers in chunks. `key` (seed, stage, step, ...) is the key of their dropout.

    is_sharded: all processes gather the weights of a layer together, so they run equally many chunks.
    """

    towers: TwoTower
    autocast: Callable[[], AbstractContextManager]
    tokens_per_batch: int | None
    device: torch.device
    key: tuple[int, ...]
    world: World
    is_sharded: bool = False

    def forward(self, texts: TextBatch) -> torch.Tensor:
        """Return vectors (U, D) float32 in the order of `texts.rows`, with a graph if gradients are enabled;
        U may be 0."""
        encoded = list(self.encoded(texts))
        if not encoded:
            return torch.empty(0, self.towers.queries.dimension, device=self.device)
        chunks, vectors = zip(*encoded, strict=True)
        return torch.cat(vectors)[to_device(self.device, np.argsort(np.concatenate(chunks)))[0]]

    def encoded(self, texts: TextBatch) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Each chunk's positions and vectors; those of a filler are empty."""
        number = 0
        for number, chunk in enumerate(self.chunks(texts), start=1):
            yield chunk, self._run(texts, number - 1, texts.rows[chunk])
        for filler in range(number, number + texts.fillers):
            yield NONE, self._run(texts, filler, FIRST)[:0]

    def chunks(self, texts: TextBatch) -> list[np.ndarray]:
        return training_batches(texts.lengths, self.tokens_per_batch, self.device, texts.texts_per_chunk)

    def _run(self, texts: TextBatch, number: int, rows: np.ndarray) -> torch.Tensor:
        ids, mask = padded_batch(texts.tokens, rows, texts.length_tokens, self.device)
        key = (*self.key, number, texts.side)
        again = recomputes(self.towers)
        dropout = reproducible_dropout(*key, rank=self.world.rank, device=self.device, is_recomputed=again)
        with dropout, self.autocast():
            return self.towers(texts.side, ids, mask).float()


class PlainPass:
    """A forward pass that holds the activations of all texts until `backward`.

    `vectors` holds the vectors (U, D) of each side, gathered from all ranks. They are leaves of the loss's
    graph: `backward` takes the loss's gradients from them and passes this rank's rows on to the towers.
    `dealt` holds, by side, the positions (n,) of each rank's texts, ascending; n may be 0.
    """

    def __init__(self, encoder: ChunkedEncoder, texts: Sequence[TextBatch]):
        self.encoder = encoder
        self.world = world = encoder.world
        self.dealt: list[list[np.ndarray]] = []
        self.own: list[TextBatch] = []
        for batch in texts:  # longest first, so that all ranks have about equally many tokens
            longest_first = np.argsort(-batch.lengths, kind="stable")
            dealt = [np.sort(longest_first[rank :: world.size]) for rank in range(world.size)]
            parts = [replace(batch, rows=batch.rows[positions]) for positions in dealt]
            own = parts[world.rank]
            if encoder.is_sharded:
                counts = [len(encoder.chunks(part)) for part in parts]
                own = replace(own, fillers=max(counts) - counts[world.rank])
            self.dealt.append(dealt)
            self.own.append(own)
        self.own_vectors = self._forward()
        self.vectors: dict[Side, torch.Tensor] = {}
        for own, dealt, vectors in zip(self.own, self.dealt, self.own_vectors, strict=True):
            whole = vectors.detach()
            if world.size > 1:
                gathered = world.gather(vectors, list(map(len, dealt)), for_device=True)
                whole = torch.cat(gathered)[to_device(whole.device, np.argsort(np.concatenate(dealt)))[0]]
            self.vectors[own.side] = whole.requires_grad_()

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate in the towers the gradients of `loss` that flow through this rank's texts."""
        # There is no graph without a local text or with a frozen tower, and no gradient for a side that the
        # loss does not use.
        pairs = [
            (vectors, gradients)
            for vectors, gradients in zip(self.own_vectors, self._own_gradients(loss), strict=True)
            if vectors.requires_grad and gradients is not None
        ]
        torch.autograd.backward([vectors for vectors, _ in pairs], [gradients for _, gradients in pairs])

    def _forward(self) -> list[torch.Tensor]:
        return [self.encoder.forward(texts) for texts in self.own]

    def _own_gradients(self, loss: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the gradients of `loss` for this rank's vectors (n, D), by side; None for an unused side."""
        loss.backward()
        gradients = [leaf.grad for leaf in self.vectors.values()]
        if self.world.size == 1:
            return gradients
        return [
            None if whole is None else whole[to_device(whole.device, dealt[self.world.rank])[0]]
            for whole, dealt in zip(gradients, self.dealt, strict=True)
        ]


class GradCache(PlainPass):
    """A pass with the gradients of `PlainPass` that holds the activations of one chunk of texts at a time.

    Source: Gao et al. 2021, arXiv:2101.06983: encode without a graph, cache the gradients of the loss with
    respect to the vectors, then encode each chunk again and pass its cached gradients back.
    """

    def backward(self, loss: torch.Tensor) -> None:
        for texts, gradients in zip(self.own, self._own_gradients(loss), strict=True):
            if gradients is not None and self.encoder.towers.trains(texts.side):
                for chunk, vectors in self.encoder.encoded(texts):  # again, with the same dropout
                    vectors.backward(gradients[to_device(vectors.device, chunk)[0]])

    def _forward(self) -> list[torch.Tensor]:
        with torch.no_grad():
            return super()._forward()


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk of a batch, ready for `term_losses`: its rows, with live candidates, and vectors (U, D) of each
    side.

    `passages` maps documents to the rows of `vectors["document"]` where documents are split into passages.
    `share` is the chunk's share of the batch's queries.
    """

    batch: Batch
    vectors: dict[Side, torch.Tensor]
    passages: Passages | None
    share: float
    encoding: PlainPass

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate in the towers the gradients of the chunk's mean `loss`, times its share of the batch."""
        self.encoding.backward(self.share * loss)


@dataclass(frozen=True)
class BatchEncoder:
    """Encodes the batches of one stage.

    `autocast` is the context of the training precision; `key` is (seed, stage).

    `documents` are the frozen documents of a stage that trains the query tower alone, else None. `is_sharded`
    as in `ChunkedEncoder`.
    """

    stage: Stage
    data: PreparedData
    encoder: Encoder
    autocast: Callable[[], AbstractContextManager]
    tokens_per_batch: int | None
    key: tuple[int, ...]
    world: World
    documents: FrozenDocuments | None = None
    is_sharded: bool = False

    def encode(
        self, batch: Batch, step: int, known_positives: KnownPositives | None = None
    ) -> Iterator[EncodedChunk]:
        """Encode the batch in chunks whose losses are independent and add up; each should be passed back
        before the next.

        Queries with negatives of their own are independent, so chunks accumulate gradients: each has
        `chunk_queries` per process, or else as many as fit the budget of tokens. In-batch negatives couple
        all queries: the batch is one chunk, and `chunk_queries` makes it go through GradCache. Live sources
        find the positives `known_positives` of queries; None: the judged ones.
        """
        make_pass = GradCache if self._is_coupled and self.stage.chunk_queries else PlainPass
        for number, chunk in enumerate(self._chunks(batch)):
            key, share = (*self.key, step, number), len(chunk.queries) / len(batch.queries)
            towers, device = self.encoder.towers, self.encoder.device
            encoder = ChunkedEncoder(
                towers, self.autocast, self.tokens_per_batch, device, key, self.world, self.is_sharded
            )
            encoding = make_pass(encoder, self._texts(chunk))
            vectors = dict(encoding.vectors)
            if self.documents is not None:
                chunk, vectors["document"] = self.documents.add_live_candidates(
                    chunk, vectors["query"], share, known_positives
                )
            passages = self.data.training_rows_of(chunk.unique["document"])[1]
            yield EncodedChunk(chunk, vectors, passages, share, encoding)

    @property
    def _is_coupled(self) -> bool:
        return any(term.in_batch_negatives for term in self.stage.terms.values())

    def _chunks(self, batch: Batch) -> list[Batch]:
        if self._is_coupled:
            return [batch]
        if self.stage.chunk_queries:  # of each process
            return batch.chunks(self.stage.chunk_queries * self.world.size)
        return self._within_budget(batch)

    def _within_budget(self, batch: Batch) -> list[Batch]:
        """Split the batch, equally on all processes, until no chunk's texts exceed the budget of tokens on a
        process; a query with more texts than that is a chunk of its own."""
        tokens = 0  # with padding, on the first process, which has the longest texts
        for texts in self._texts(batch):
            lengths = np.sort(texts.lengths)[::-1][:: self.world.size]
            batches = training_batches(lengths, self.tokens_per_batch, self.encoder.device)
            tokens += sum(len(rows) * int(lengths[rows[0]]) for rows in batches)
        parts = math.ceil(tokens / (self.tokens_per_batch or TOKENS_PER_CHUNK))
        if parts <= 1 or len(batch.queries) == 1:
            return [batch]
        size = math.ceil(len(batch.queries) / parts)
        return [chunk for part in batch.chunks(size) for chunk in self._within_budget(part)]

    def _texts(self, batch: Batch) -> list[TextBatch]:
        """Return the texts to encode: queries, and documents (or their passages) unless these are frozen."""
        queries, chunk_queries = self.data.queries[self.data.train_split], self.stage.chunk_queries
        share = chunk_queries / len(batch.queries) if chunk_queries else None

        def texts(side: Side, tokens: TokenStore, rows: np.ndarray) -> TextBatch:
            per_chunk = None if share is None else math.ceil(share * len(rows))
            return TextBatch(side, tokens, rows, self.encoder.length_tokens(side), per_chunk)

        own = [texts("query", queries, batch.unique["query"])]
        if self.documents is None:
            rows = self.data.training_rows_of(batch.unique["document"])[0]
            own.append(texts("document", self.data.documents, rows))
        return own
