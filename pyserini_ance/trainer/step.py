"""One optimiser step: encode the batch's texts, take the terms' losses, and leave gradients on the towers.

Where the query tower trains alone, only queries are encoded; then documents are found with their vectors, and looked up.
"""

import math
from dataclasses import dataclass

import torch

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer.batch import Batch
from pyserini_ance.trainer.fixed import FixedDocuments
from pyserini_ance.trainer.forward import Forward, SideInput, cached_backward, plain_backward
from pyserini_ance.trainer.objective import term_losses, weighted_sum


@dataclass(frozen=True)
class StepRunner:
    """Runs batches of one stage. `autocast` is the training precision's context.

    `documents` are those of a stage that trains the query tower alone; None where both towers train.
    """

    stage: Stage
    data: PreparedData
    encoder: Encoder
    autocast: object
    tokens_per_batch: int
    key: tuple
    world: World
    documents: FixedDocuments | None = None

    def accumulate(self, batch: Batch, step: int) -> dict[str, float]:
        """Gradients of the step's whole loss, and its value by term (mean over the whole batch), alike on all processes.

        Own pools of different queries are independent, so chunks of queries simply add up. A step pool couples
        them all: its chunks go through GradCache. The towers come without gradients: processes add up what they find there.
        """
        totals = dict.fromkeys(self.stage.terms, 0.0)
        for number, chunk in enumerate([batch] if self._coupled else batch.chunks(self._queries_at_once)):
            losses = self._backward(chunk, len(chunk.queries) / len(batch.queries), self._forward(step, number))
            totals = {name: totals[name] + loss for name, loss in losses.items()}
        self.world.sum_gradients(self.encoder.towers.parameters())
        return totals

    def _backward(self, chunk: Batch, share: float, forward: Forward) -> dict[str, float]:
        values: dict[str, float] = {}

        def loss_of(queries: torch.Tensor, documents: torch.Tensor | None = None) -> torch.Tensor:
            batch, documents = (chunk, documents) if self.documents is None else self.documents.complete(chunk, queries, share)
            vectors, passages = {"query": queries, "document": documents}, self.data.training_rows_of(batch.unique("document"))[1]
            losses = term_losses(self.stage.terms, batch, self.data.directions, vectors, passages)
            values.update({name: share * float(loss.detach()) for name, loss in losses.items()})
            return share * weighted_sum(self.stage.terms, losses)

        backward = cached_backward if self._coupled and self.stage.chunk_queries else plain_backward
        backward(forward, self._sides(chunk), loss_of)
        return values

    @property
    def _coupled(self) -> bool:
        return any(term.pool == "step" for term in self.stage.terms.values())

    @property
    def _queries_at_once(self) -> int | None:
        """By all processes together: `chunk_queries` bounds the memory of each, and they share a chunk."""
        return self.stage.chunk_queries and self.stage.chunk_queries * self.world.size

    def _sides(self, chunk: Batch) -> list[SideInput]:
        queries, documents = self.data.queries[self.data.train_split], self.data.documents
        texts = [("query", queries, chunk.unique("query"))]
        if self.documents is None:
            texts.append(("document", documents, self.data.training_rows_of(chunk.unique("document"))[0]))
        share = self.stage.chunk_queries and self.stage.chunk_queries / len(chunk.queries)
        return [
            SideInput(side, tokens, rows, self.encoder.length_tokens(side), share and math.ceil(share * len(rows)))
            for side, tokens, rows in texts
        ]

    def _forward(self, step: int, chunk: int) -> Forward:
        key = (*self.key, step, chunk)
        return Forward(self.encoder.towers, self.autocast, self.tokens_per_batch, self.encoder.device, key, self.world)
