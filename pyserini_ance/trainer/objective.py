"""The objective: from the vectors of a step's texts, through pools and losses, to one value for each term."""

from collections.abc import Mapping

import numpy as np
import torch

from pyserini_ance.data.collection import Relation, Side
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.passages import Passages
from pyserini_ance.negatives.guards import grades_of, known_positive
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.stage import Term
from pyserini_ance.trainer.batch import Batch, TermRows


def term_losses(
    terms: Mapping[str, Term],
    batch: Batch,
    directions: Mapping[Side, Direction],
    vectors: Mapping[Side, torch.Tensor],
    passages: Passages | None = None,
) -> dict[str, torch.Tensor]:
    """The mean loss of each term, unweighted: {name: scalar}.

    vectors[side] (unique rows, D) float32 are in the batch's order. With `passages` those of documents are of their passages, and a
    document scores what its best passage does.
    """
    relations = {name: directions[term.anchor].relation for name, term in terms.items()}
    return {name: _term_loss(term, batch, batch.terms[name], relations[name], vectors, passages) for name, term in terms.items()}


def weighted_sum(terms: Mapping[str, Term], losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return sum(term.weight * losses[name] for name, term in terms.items())


def _term_loss(
    term: Term, batch: Batch, rows: TermRows, relation: Relation, vectors: Mapping[Side, torch.Tensor], passages: Passages | None
) -> torch.Tensor:
    def of(side: Side, wanted: np.ndarray) -> torch.Tensor:
        return vectors[side][_like(batch.positions(side, wanted), vectors[side])]

    if term.regularizer is not None:
        texts, pairs = _pairs(rows)
        return term.regularizer(*(of(side, one) for side, one in texts.items()), _like(pairs, vectors[rows.anchor]))
    columns, labels, mask = _step_pool(rows, relation) if term.pool == "step" else _own_pool(rows, relation)
    if term.loss.graded:
        labels = labels * grades_of(relation, rows.anchors, np.broadcast_to(columns, labels.shape))
    anchors, columns = batch.positions(rows.anchor, rows.anchors), batch.positions(rows.candidate, columns)
    if passages is None:
        scores = _scores(vectors[rows.anchor], vectors[rows.candidate], anchors, columns)
    else:
        scores = _best_scores(vectors, rows.anchor, anchors, columns, passages)
    labels, mask = _like(labels, scores).float(), _like(mask, scores)
    if term.hardest is not None:
        mask = mask & ((labels > 0) | _among_hardest(scores, mask & (labels == 0), term.hardest))
    return term.loss(scores, labels, mask).mean()


def _pairs(rows: TermRows) -> tuple[dict[Side, np.ndarray], np.ndarray]:
    """Anchors (A,) and positives (P,), each text once, by side; and (N, 2) where in them each pair stands."""
    place, column = np.nonzero(rows.positives != PADDING)
    anchors, of_anchor = np.unique(rows.anchors, return_inverse=True)
    positives, of_positive = np.unique(rows.positives[place, column], return_inverse=True)
    return {rows.anchor: anchors, rows.candidate: positives}, np.stack([of_anchor[place], of_positive], axis=1)


def _scores(own: torch.Tensor, others: torch.Tensor, anchors: np.ndarray, columns: np.ndarray) -> torch.Tensor:
    """(B, n) of the positions of anchors (B,) and of what they are scored with: (B, n), or (n,) the same for all."""
    anchors, candidates = own[_like(anchors, own)], others[_like(columns, others)]
    return anchors @ candidates.T if columns.ndim == 1 else torch.einsum("bd,bnd->bn", anchors, candidates)


def _best_scores(
    vectors: Mapping[Side, torch.Tensor], anchor: Side, anchors: np.ndarray, columns: np.ndarray, passages: Passages
) -> torch.Tensor:
    """The same, where of the passages of each document, anchor or candidate, the best counts."""
    if anchor == "document":
        pieces, there = passages.of(anchors)  # (B, pieces)
        each = [_scores(vectors["document"], vectors["query"], of_anchors, columns) for of_anchors in pieces.T]
        scores, there = torch.stack(each, -1), there[:, None]
    else:
        pieces, there = passages.of(columns)  # (..., n, pieces)
        flat = _scores(vectors["query"], vectors["document"], anchors, pieces.reshape(*columns.shape[:-1], -1))
        scores = flat.unflatten(1, pieces.shape[-2:])
    return scores.masked_fill(~_like(there, scores), -torch.inf).max(-1).values


Pool = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows (columns,) or (B, columns), labels and mask (B, columns) bool


def _own_pool(rows: TermRows, relation: Relation) -> Pool:
    """The anchor's own positives (B, P), then its own negatives (B, n). A known positive is one wherever it stands."""
    columns = np.concatenate([rows.positives, rows.negatives], axis=1)
    return columns, known_positive(relation, rows.anchors, columns), columns != PADDING


def _step_pool(rows: TermRows, relation: Relation) -> Pool:
    """Everything drawn for any anchor of the step, as often as it was drawn.

    For an anchor, the positives in its own pool are positives; copies of them elsewhere and its other known positives are masked.
    """
    columns = np.concatenate([rows.positives, rows.negatives], axis=1)
    own = np.repeat(np.eye(len(columns), dtype=bool), columns.shape[1], axis=1)
    columns = columns.ravel()
    known = known_positive(relation, rows.anchors, np.broadcast_to(columns, own.shape))
    return columns, own & known, (columns != PADDING) & (own | ~known)


def _among_hardest(scores: torch.Tensor, negative: torch.Tensor, n: int) -> torch.Tensor:
    """(B, columns) bool: the n negatives that score highest now ("NCE": the hardest in the batch)."""
    ranked = scores.detach().masked_fill(~negative, -torch.inf)
    top = ranked.topk(min(n, ranked.shape[1]), dim=1).indices
    return torch.zeros_like(negative).scatter_(1, top, True) & negative


def _like(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)
