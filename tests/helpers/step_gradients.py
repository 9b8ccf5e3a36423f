"""The part of a training step between the draw of a batch and the update of the weights."""

import numpy as np
import torch

from pyserini_ance.distributed.world import sum_gradients
from pyserini_ance.trainer.batch import Batch
from pyserini_ance.trainer.objective import term_losses, weighted_sum
from pyserini_ance.trainer.step import BatchEncoder


def compute_gradients(encoder: BatchEncoder, batch: Batch, step: int) -> dict[str, float]:
    """Accumulate the batch's gradients in the towers, as StageTrainer does; return the terms' losses."""
    terms = encoder.stage.terms
    totals = dict.fromkeys(terms, 0.0)
    for chunk in encoder.encode(batch, step):
        losses = term_losses(terms, chunk.batch, encoder.data.anchor_sets, chunk.vectors, chunk.passages)
        totals = {name: totals[name] + chunk.share * float(losses[name].detach()) for name in terms}
        chunk.backward(weighted_sum(terms, losses))
    sum_gradients(encoder.encoder.towers.parameters(), encoder.world)
    return totals


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def vector_alone(model, tokens, row: int, length: int) -> torch.Tensor:
    """A text through the plain model, without others beside it; the mean over its tokens."""
    ids, mask = map(torch.from_numpy, tokens.batch(np.array([row]), length))
    return model(input_ids=ids, attention_mask=mask).last_hidden_state[0].mean(0)
