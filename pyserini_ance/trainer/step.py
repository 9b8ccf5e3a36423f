"""One optimiser step: encode the batch's texts, take the terms' losses, and leave gradients on the towers."""

import math
from dataclasses import dataclass, replace

import torch

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.recipe.models import Stage
from pyserini_ance.trainer.batch import Batch
from pyserini_ance.trainer.forward import Forward, SideInput, cached_backward
from pyserini_ance.trainer.objective import term_losses, weighted_sum


@dataclass(frozen=True)
class StepRunner:
    """Runs batches of one stage. `autocast` is the training precision's context."""

    stage: Stage
    data: PreparedData
    encoder: Encoder
    autocast: object
    tokens_per_batch: int
    key: tuple

    def accumulate(self, batch: Batch, step: int) -> dict[str, float]:
        """Gradients of the step's whole loss, and its value by term (mean over the whole batch).

        Own pools of different queries are independent, so chunks of queries simply add up. A step pool couples
        them all: its chunks go through GradCache.
        """
        coupled = any(term.pool == "step" for term in self.stage.terms.values())
        if coupled and self.stage.chunk_queries is not None:
            return self._cached(batch, step)
        totals = dict.fromkeys(self.stage.terms, 0.0)
        for number, chunk in enumerate(batch.chunks(self.stage.chunk_queries)):
            forward, share = self._forward(step, number), len(chunk.queries) / len(batch.queries)
            losses = self._losses(chunk, *(forward.vectors(side) for side in self._sides(chunk)))
            (weighted_sum(self.stage.terms, losses) * share).backward()
            totals = {name: totals[name] + share * float(loss.detach()) for name, loss in losses.items()}
        return totals

    def _cached(self, batch: Batch, step: int) -> dict[str, float]:
        values: dict[str, float] = {}

        def loss_of(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
            losses = self._losses(batch, queries, documents)
            values.update({name: float(loss.detach()) for name, loss in losses.items()})
            return weighted_sum(self.stage.terms, losses)

        share = self.stage.chunk_queries / len(batch.queries)
        sides = [replace(side, texts_per_chunk=math.ceil(share * len(side.rows))) for side in self._sides(batch)]
        cached_backward(self._forward(step, 0), sides, loss_of)
        return values

    def _losses(self, batch: Batch, queries: torch.Tensor, documents: torch.Tensor) -> dict[str, torch.Tensor]:
        return term_losses(self.stage.terms, batch, self.data.split.qrels, queries, documents)

    def _sides(self, batch: Batch) -> list[SideInput]:
        queries = self.data.queries[self.data.train_split]
        return [
            SideInput("query", queries, batch.unique_queries, self.encoder.length_tokens("query")),
            SideInput("document", self.data.documents, batch.unique_documents, self.encoder.length_tokens("document")),
        ]

    def _forward(self, step: int, chunk: int) -> Forward:
        return Forward(self.encoder.towers, self.autocast, self.tokens_per_batch, self.encoder.device, (*self.key, step, chunk))
