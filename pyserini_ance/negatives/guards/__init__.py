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
    _, positives, asked = _pairs(relation, anchors, candidates)
    return np.isin(asked, positives) & (candidates != PADDING)


def grades_of(relation: Relation, anchors: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """(B, n) int32: the grade of candidates[i, j] for anchors[i], 0 where it is no known positive. Each anchor has some."""
    places, positives, asked = _pairs(relation, anchors, candidates)
    order = np.argsort(positives)
    nearest = order[np.searchsorted(positives, asked, sorter=order).clip(max=len(order) - 1)]
    return np.where((positives[nearest] == asked) & (candidates != PADDING), relation.grades[places[nearest]], 0)


def _pairs(relation: Relation, anchors: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(P,) places of the known positives of `anchors` in `relation.rows`; a number for each pair of an anchor and a row, (P,) of these and
    (B, n) of the candidates.
    """
    starts, stops = relation.offsets[anchors], relation.offsets[anchors + 1]
    width = int((stops - starts).max(initial=0))
    columns = starts[:, None] + np.arange(width)
    places = columns[columns < stops[:, None]]
    base = int(max(candidates.max(initial=0), relation.rows.max(initial=0))) + 1
    anchor = np.arange(len(anchors))
    return places, np.repeat(anchor, stops - starts) * base + relation.rows[places], anchor[:, None] * base + candidates


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
    candidates, scores = keep(kept, width, (candidates, np.int32(PADDING)), (scores, np.float32(-np.inf)))
    return candidates, scores, dropped


def keep(kept: np.ndarray, width: int, *arrays: tuple[np.ndarray, np.generic]) -> list[np.ndarray]:
    """Of each array (A, n) the first `width` of each row where `kept` (A, n) is true, in order, then the padding that comes with
    it, of whose type the result is.
    """
    order = np.argsort(~kept, axis=1, kind="stable")[:, :width]
    kept = np.take_along_axis(kept, order, 1)
    return [np.where(kept, np.take_along_axis(array, order, 1), padding).astype(padding.dtype) for array, padding in arrays]
