"""The part of a training step between the draw of a batch and the update of the weights."""

from pyserini_ance.distributed.gradient_sum import sum_gradients
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
