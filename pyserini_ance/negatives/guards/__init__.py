"""Guards against false negatives: candidates that must not be used, taken out of a table's rows.

Known positives always are; what a recipe lists under `guards:` is one file a rule.
"""

from collections.abc import Mapping

import numpy as np

from pyserini_ance.data.collection import Relation
from pyserini_ance.negatives.table import PADDING

NOT_KINDS = ("candidates", "guard")
KNOWN_POSITIVES = "known positives"


def known_positive(relation: Relation, anchors: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """(B, n) bool: is candidates[i, j] a known positive of anchors[i]? candidates (B, n) rows, PADDING is none."""
    starts, stops = relation.offsets[anchors], relation.offsets[anchors + 1]
    width = int((stops - starts).max(initial=0))
    columns = starts[:, None] + np.arange(width)
    inside = columns < stops[:, None]
    base = int(max(candidates.max(initial=0), relation.rows.max(initial=0))) + 1
    place = np.arange(len(anchors))[:, None]
    positives = (place * base + relation.rows[np.where(inside, columns, 0)])[inside]
    return np.isin(place * base + candidates, positives) & (candidates != PADDING)


def take_out(
    candidates: np.ndarray, scores: np.ndarray, marked: Mapping[str, np.ndarray], width: int
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """The first `width` candidates of each row that no filter marks, and how many each filter took out of all (A, n).

    marked[filter]: (A, n) bool. What several mark is counted for the first of them; PADDING is no candidate and never counts.
    """
    kept, dropped = candidates != PADDING, {}
    for name, mark in marked.items():
        dropped[name] = int((kept & mark).sum())
        kept &= ~mark
    return *keep(candidates, scores, kept, width), dropped


def keep(candidates: np.ndarray, scores: np.ndarray, kept: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `width` candidates of each row where `kept` (A, n) is true, in order, padded at the end."""
    order = np.argsort(~kept, axis=1, kind="stable")[:, :width]
    kept = np.take_along_axis(kept, order, 1)
    candidates = np.where(kept, np.take_along_axis(candidates, order, 1), PADDING).astype(np.int32)
    return candidates, np.where(kept, np.take_along_axis(scores, order, 1), -np.inf).astype(np.float32)
