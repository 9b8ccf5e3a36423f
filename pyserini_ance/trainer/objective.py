"""The objective: from the vectors of a step's texts, through pools and losses, to one value for each term."""

from collections.abc import Mapping

import numpy as np
import torch

from pyserini_ance.data.collection import Qrels
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.models import Term
from pyserini_ance.trainer.batch import Batch


def term_losses(
    terms: Mapping[str, Term], batch: Batch, qrels: Qrels, queries: torch.Tensor, documents: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The mean loss of each term, unweighted: {name: scalar}.

    queries (unique queries, D) and documents (unique documents, D) are float32 vectors in the batch's order.
    """
    anchors = queries[_index(batch.query_positions(), queries)]
    return {name: _term_loss(term, batch, batch.negatives[name], qrels, anchors, documents) for name, term in terms.items()}


def weighted_sum(terms: Mapping[str, Term], losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return sum(term.weight * losses[name] for name, term in terms.items())


def _term_loss(
    term: Term, batch: Batch, negatives: np.ndarray, qrels: Qrels, anchors: torch.Tensor, documents: torch.Tensor
) -> torch.Tensor:
    pool = _step_pool if term.pool == "step" else _own_pool
    scores, labels, mask = pool(batch, negatives, qrels, anchors, documents)
    if term.hardest is not None:
        mask = mask & ((labels > 0) | _among_hardest(scores, mask & (labels == 0), term.hardest))
    return term.loss(scores, labels, mask).mean()


def _own_pool(batch: Batch, negatives: np.ndarray, qrels: Qrels, anchors: torch.Tensor, documents: torch.Tensor):
    """Columns: the query's own positives (B, P), then its own negatives (B, n)."""
    rows = np.concatenate([batch.positives, negatives], axis=1)
    labels = np.zeros(rows.shape, bool)
    labels[:, : batch.positives.shape[1]] = True
    scores = torch.einsum("bd,bnd->bn", anchors, documents[_index(batch.document_positions(rows), documents)])
    return scores, _like(labels, scores).float(), _like(rows != PADDING, scores)


def _step_pool(batch: Batch, negatives: np.ndarray, qrels: Qrels, anchors: torch.Tensor, documents: torch.Tensor):
    """Columns: every document drawn for any query of the step, as often as it was drawn.

    For a query, its own positives count once each as positives; other copies and its other known positives are masked.
    """
    rows = np.concatenate([batch.positives.ravel(), negatives.ravel()])
    queries, width = batch.positives.shape
    own = np.zeros((queries, len(rows)), bool)
    own[np.repeat(np.arange(queries), width), np.arange(queries * width)] = True
    mask = (rows != PADDING) & (own | ~known_positive(qrels, batch.queries, np.broadcast_to(rows, own.shape)))
    pooled = documents[_index(batch.document_positions(rows), documents)]
    scores = anchors @ pooled.T
    return scores, _like(own, scores).float(), _like(mask, scores)


def _among_hardest(scores: torch.Tensor, negative: torch.Tensor, n: int) -> torch.Tensor:
    """(B, columns) bool: the n negatives that score highest now ("NCE": the hardest in the batch)."""
    ranked = scores.detach().masked_fill(~negative, -torch.inf)
    top = ranked.topk(min(n, ranked.shape[1]), dim=1).indices
    return torch.zeros_like(negative).scatter_(1, top, True) & negative


def _index(positions: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(positions)).to(like.device)


def _like(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)
