"""The objective: the loss of each term, from the vectors of a batch's texts, through pools of candidates."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce

import numpy as np
import torch
from torch import Tensor

from pyserini_ance.data.collection import Side
from pyserini_ance.data.known_positives import grades_of, is_known_positive
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.encoders.encoder import to_device
from pyserini_ance.encoders.towers import TwoTower
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.term import Term
from pyserini_ance.storage.error_text import naming_own
from pyserini_ance.trainer.batch import Batch, TermRows
from pyserini_ance.trainer.losses.base import DistillationLoss, mean_of
from pyserini_ance.trainer.losses.embed_distill import EmbedDistill
from pyserini_ance.trainer.losses.pairwise import Pairwise
from pyserini_ance.trainer.scores import best_scores, same_side_scores, scores_of
from pyserini_ance.vectors.encoding import ShardedVectors


@dataclass
class Counts:
    """Counts of a step, by term (scalars on the device).

    ignored: the pairs that a `false_negative_margin` ignored. compared: the anchors with a positive and a
        negative to compare, both with a score of the teacher if there is one; without any, a term trains
        nothing.
    """

    ignored: dict[str, Tensor] = field(default_factory=dict)
    compared: dict[str, Tensor] = field(default_factory=dict)


def term_losses(
    terms: Mapping[str, Term],
    batch: Batch,
    anchor_sets: Mapping[Side, AnchorSet],
    vectors: Mapping[Side, Tensor],
    passages: Passages | None = None,
    counts: Counts | None = None,
    towers: TwoTower | None = None,
    targets: Mapping[str, ShardedVectors] | None = None,
) -> dict[str, Tensor]:
    """Return the mean loss of each term, unweighted: {name: scalar}.

    `vectors[side]` (U, D) float32 are in the order of `batch.unique[side]`. With `passages`, the document
    vectors are those of passages, and a document scores as its best passage (MaxP). `counts` receives the
    counts of each term. A term with `dimensions` has the weighted sum of its losses at each (Kusupati et al.
    2022, arXiv:2205.13147, Eq. 1), of vectors that `towers` cut. `targets` holds a teacher's vectors of all
    texts, for each term that learns them.
    """
    losses, counts = {}, counts or Counts()
    for name, term in terms.items():
        if isinstance(term.loss, EmbedDistill):
            assert targets is not None, "who learns a teacher's vectors passes them"
            losses[name] = _distilled(term.loss, batch, batch.terms[name], vectors, targets[name])
            continue
        if term.dimensions is None:
            losses[name] = _loss(name, term, batch, anchor_sets, vectors, passages, counts)
            continue
        assert towers is not None, "who trains at several dimensions passes the towers"
        parts = []
        for dimension, weight in sorted(term.dimensions.items()):  # the counts are those of the greatest
            short = towers.cut(vectors, dimension)
            parts.append(weight * _loss(name, term, batch, anchor_sets, short, passages, counts))
        losses[name] = torch.stack(parts).sum()
    return losses


def weighted_sum(terms: Mapping[str, Term], losses: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of the terms' losses, each times the weight of its term."""
    return reduce(operator.add, (term.weight * losses[name] for name, term in terms.items()))


def _loss(
    name: str,
    term: Term,
    batch: Batch,
    anchor_sets: Mapping[Side, AnchorSet],
    vectors: Mapping[Side, Tensor],
    passages: Passages | None,
    counts: Counts,
) -> Tensor:
    """Return a term's mean loss, as `term_losses`, at the dimension of the vectors."""
    rows, anchor_set = batch.terms[name], anchor_sets[term.anchor]
    if term.regularizer is not None:
        return term.regularizer(*_regularized(batch, rows, vectors, passages))
    assert not isinstance(term.loss, EmbedDistill)  # which `term_losses` computes, of vectors
    columns, labels_on_host, mask_on_host = _pool(rows, anchor_set, term.in_batch_negatives)
    if term.loss.graded:
        all_columns = np.broadcast_to(columns, labels_on_host.shape)
        labels_on_host = labels_on_host * grades_of(anchor_set.known_positives, rows.anchors, all_columns)
    anchors = batch.positions(rows.anchor, rows.anchors)
    columns = batch.positions(rows.candidate, columns)
    if passages is None:
        scores = scores_of(vectors[rows.anchor], vectors[rows.candidate], anchors, columns)
    else:
        scores = best_scores(vectors, rows.anchor, anchors, columns, passages)
    if term.same_side_negatives:
        others, may_be = same_side_scores(rows, anchor_set, vectors, batch)
        scores, mask_on_host = torch.cat([scores, others], 1), np.concatenate([mask_on_host, may_be], 1)
        labels_on_host = np.concatenate([labels_on_host, np.zeros_like(may_be)], 1)
    loss: Callable[..., Tensor] = term.loss
    of_teacher = []
    if isinstance(loss, DistillationLoss):
        assert rows.teacher is not None, "the refresher publishes a teacher's scores with the tables"
        of_teacher, mask_on_host = [rows.teacher], mask_on_host & ~np.isnan(rows.teacher)
    if isinstance(loss, Pairwise):  # nothing below ignores another positive
        loss = partial(loss, max_positives=int(((labels_on_host > 0) & mask_on_host).sum(1).max()))
    labels, mask, *teacher = to_device(scores.device, labels_on_host, mask_on_host, *of_teacher)
    labels = labels.float()
    if term.false_negative_margin is not None:
        likely_positive = _false_negatives(scores, labels, mask, term.false_negative_margin)
        mask, counts.ignored[name] = mask & ~likely_positive, likely_positive.sum()
    if term.num_hardest is not None:
        negative = mask & (labels == 0)
        ranked = scores.detach().masked_fill(~negative, -torch.inf)
        top = ranked.topk(min(term.num_hardest, ranked.shape[1]), dim=1).indices
        hardest = torch.zeros_like(negative).scatter_(1, top, True) & negative
        mask = mask & ((labels > 0) | hardest)
    has_positive, has_negative = ((mask & chosen).any(1) for chosen in (labels > 0, labels == 0))
    counts.compared[name] = (has_positive & has_negative).sum()
    with naming_own(term.loss.kind, "__call__"):
        of_anchors = loss(scores, labels, mask, *teacher)
    if not (isinstance(of_anchors, Tensor) and of_anchors.shape == scores.shape[:1]):
        got = tuple(of_anchors.shape) if isinstance(of_anchors, Tensor) else type(of_anchors).__name__
        expected = f"a tensor of one value per row of scores {tuple(scores.shape)}: {tuple(scores.shape[:1])}"
        raise ValueError(f"loss {term.loss.kind} of term {name} returned {got}; expected {expected}")
    return of_anchors.mean()


def _distilled(
    loss: EmbedDistill, batch: Batch, rows: TermRows, vectors: Mapping[Side, Tensor], targets: ShardedVectors
) -> Tensor:
    """Return the mean over the anchors of their loss, which is a mean over their texts."""
    side, texts = rows.anchor, rows.anchors[:, None]
    if loss.texts == "candidates":
        side, texts = rows.candidate, np.concatenate([rows.positives, rows.negatives], axis=1)
    mask = texts != PADDING
    of_batch = targets[batch.unique[side]]
    places, is_text, teacher = to_device(vectors[side].device, batch.positions(side, texts), mask, of_batch)
    return mean_of(loss(vectors[side], teacher)[places], is_text).mean()


def _regularized(
    batch: Batch, rows: TermRows, vectors: Mapping[Side, Tensor], passages: Passages | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the vectors of anchors (A, D) and positives (P, D), each text once, and the pairs (N, 2).

    With `passages`, each passage of a document is a text (MaxP), and in a pair it is the document's best
    passage for that query.
    """
    line, column = np.nonzero(rows.positives != PADDING)
    anchors, of_anchor = np.unique(rows.anchors, return_inverse=True)
    positives, of_positive = np.unique(rows.positives[line, column], return_inverse=True)
    pairs = np.stack([of_anchor[line], of_positive], axis=1)
    texts = {rows.anchor: batch.positions(rows.anchor, anchors)}
    texts[rows.candidate] = batch.positions(rows.candidate, positives)
    among = None
    if passages is not None:
        texts["document"], among = passages.rows(texts["document"])
    device = vectors[rows.anchor].device
    *places, chosen_pairs = to_device(device, *texts.values(), pairs)
    chosen = {side: vectors[side][of_side] for side, of_side in zip(texts, places, strict=True)}
    if among is not None:
        query, document = (0, 1) if rows.anchor == "query" else (1, 0)
        pieces, mask = among.of(pairs[:, document])  # (N, pieces)
        scores = scores_of(chosen["query"].detach(), chosen["document"].detach(), pairs[:, query], pieces)
        is_piece, of_document = to_device(device, mask, pieces)
        best = scores.masked_fill(~is_piece, -torch.inf).argmax(1, keepdim=True)
        chosen_pairs[:, document] = of_document.gather(1, best)[:, 0]
    return chosen[rows.anchor], chosen[rows.candidate], chosen_pairs


def _pool(rows: TermRows, anchor_set: AnchorSet, in_batch: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (columns,) or (B, columns), labels (B, columns) bool, and mask (B, columns) bool.

    Each anchor's own positives (B, P), then its own negatives (B, n); known positives are labelled in both.
    In batch: all candidates drawn for any anchor of the batch, as many times as they were drawn. The
    positives of an anchor are then those in its own pool; what else may not be its negative is masked.
    """
    columns = np.concatenate([rows.positives, rows.negatives], axis=1)
    candidates, own = columns, np.ones(columns.shape, bool)
    if in_batch:
        own = np.repeat(np.eye(len(columns), dtype=bool), columns.shape[1], axis=1)
        columns = columns.ravel()
        candidates = np.broadcast_to(columns, own.shape)
    known = is_known_positive(anchor_set.known_positives, rows.anchors, candidates)
    labels = own & known
    never = anchor_set.never_negative(rows.anchors, candidates, known)
    return columns, labels, (columns != PADDING) & (labels | ~never)


def _false_negatives(scores: Tensor, labels: Tensor, mask: Tensor, margin: float) -> Tensor:
    """Return a mask (B, columns) of the negatives that score above the anchor's best positive plus `margin`.

    A positive is never marked, and nothing is for an anchor without a positive.
    Sources: Zhang et al. 2025, arXiv:2506.05176 (Qwen3-Embedding, the mask m of Eq. 1, margin 0.1); Solatorio
    2024, arXiv:2402.16829 (GISTEmbed, whose guide is another model; here it is the model in training).
    """
    # Differs from both: they have one positive. With several, the best one decides: a lower one may be a text
    # that the model has yet to learn.
    scores, positive = scores.detach(), mask & (labels > 0)
    best = scores.masked_fill(~positive, -torch.inf).amax(1, keepdim=True)
    best = best.masked_fill(~positive.any(1, keepdim=True), torch.inf)
    return mask & (labels == 0) & (scores > best + margin)
