"""Scores of anchors with candidates, and of texts of the same side with each other."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from pyserini_ance.data.collection import Side
from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.encoders.encoder import to_device
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.trainer.batch import Batch, TermRows


def scores_of(own: Tensor, others: Tensor, anchors: np.ndarray, columns: np.ndarray) -> Tensor:
    """Return scores (B, n) of anchors (B,) with candidates (B, n), or (n,) for all anchors (positions)."""
    own_rows, other_rows = to_device(own.device, anchors, columns)
    left, right = own[own_rows], others[other_rows]
    return left @ right.T if columns.ndim == 1 else torch.einsum("bd,bnd->bn", left, right)


def best_scores(
    vectors: Mapping[Side, Tensor], anchor: Side, anchors: np.ndarray, columns: np.ndarray, passages: Passages
) -> Tensor:
    """Like `scores_of`, but a document, anchor or candidate, scores as its best passage (MaxP)."""
    if anchor == "document":
        pieces, mask = passages.of(anchors)  # (B, pieces)
        each = [scores_of(vectors["document"], vectors["query"], piece, columns) for piece in pieces.T]
        scores, mask = torch.stack(each, -1), mask[:, None]
    else:
        pieces, mask = passages.of(columns)  # (..., n, pieces)
        rows = pieces.reshape(*columns.shape[:-1], -1)
        flat = scores_of(vectors["query"], vectors["document"], anchors, rows)
        scores = flat.unflatten(1, pieces.shape[-2:])
    return scores.masked_fill(~to_device(scores.device, mask)[0], -torch.inf).max(-1).values


def same_side_scores(
    rows: TermRows, anchor_set: AnchorSet, vectors: Mapping[Side, Tensor], batch: Batch
) -> tuple[Tensor, np.ndarray]:
    """Return scores (B, 2 B) of anchors with each other, then of their first positives with each other, and
    which of them are negatives (B, 2 B): not those of equal texts or of another positive of the anchor."""
    firsts = rows.positives[:, 0]
    own = [
        vectors[side][to_device(vectors[side].device, batch.positions(side, of))[0]]
        for side, of in {rows.anchor: rows.anchors, rows.candidate: firsts}.items()
    ]
    candidates = np.broadcast_to(firsts, (len(firsts), len(firsts)))
    known = is_known_positive(anchor_set.known_positives, rows.anchors, candidates)
    negative = ~anchor_set.never_negative(rows.anchors, candidates, known) & (candidates != PADDING)
    return torch.cat([each @ each.T for each in own], 1), np.concatenate([negative, negative], axis=1)
