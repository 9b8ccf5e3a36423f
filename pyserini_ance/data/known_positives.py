"""The known positives of queries, or of documents, and which candidates are among them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")
PLURALS: dict[Side, str] = {"query": "queries", "document": "documents"}
PADDING = -1  # in place of a row, where a line of candidates is shorter than others
MOST_COMPARED = 16  # positives of an anchor that are compared one by one with its candidates
LINES_PER_BLOCK = 4096  # of a table whose pairs are numbered at once, 8 bytes each


@dataclass(frozen=True, eq=False)
class KnownPositives:
    """The relevant rows of the other side for every row of one side, in compressed sparse row form.

    offsets: (rows + 1,) int64 into `rows` and `grades`.
    rows: (P,) int32, the relevant rows of the other side; grades: (P,) int32, their relevance grades.
    """

    offsets: np.ndarray
    rows: np.ndarray
    grades: np.ndarray

    def of(self, row: int) -> np.ndarray:
        return self.rows[self.offsets[row] : self.offsets[row + 1]]

    @property
    def counts(self) -> np.ndarray:
        """(rows,) int64, the number of positives of each row."""
        return np.diff(self.offsets)

    @cached_property
    def anchors(self) -> np.ndarray:
        """(A,) int32, ascending: the rows that have at least one positive."""
        return np.flatnonzero(self.counts).astype(np.int32)

    def subset(self, rows: np.ndarray) -> "KnownPositives":
        """Select these anchors and renumber them in the order given."""
        offsets, positions = selected(self.offsets, rows)
        return KnownPositives(offsets, self.rows[positions], self.grades[positions])

    @cached_property
    def inverse(self) -> "KnownPositives":
        """The same pairs seen from the other side, up to its last row that has a positive."""
        anchors = np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), self.counts)
        order = np.argsort(self.rows, kind="stable")
        return KnownPositives(offsets_of(np.bincount(self.rows)), anchors[order], self.grades[order])


def selected(
    offsets: np.ndarray, rows: np.ndarray, counts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Select `rows` of a compressed sparse row form: their offsets, and the positions of their entries.

    counts: (rows,) the number of entries to select of each, the first ones. None: all.
    """
    counts = offsets[rows + 1] - offsets[rows] if counts is None else counts
    selected_offsets = offsets_of(counts)
    positions = np.repeat(offsets[rows] - selected_offsets[:-1], counts) + np.arange(selected_offsets[-1])
    return selected_offsets, positions


def is_known_positive(
    known_positives: KnownPositives, anchors: np.ndarray, candidates: np.ndarray
) -> np.ndarray:
    """(B, n) bool: whether candidates[i, j] is a known positive of anchors[i].

    candidates: (B, n) rows; PADDING is never a positive.
    """
    starts = known_positives.offsets[anchors]
    counts = known_positives.offsets[anchors + 1] - starts
    is_positive = np.zeros(candidates.shape, bool)
    few = counts <= MOST_COMPARED
    for place in range(int(counts[few].max(initial=0))):
        wanted = few & (counts > place)
        lines = slice(None) if wanted.all() else np.flatnonzero(wanted)
        is_positive[lines] |= candidates[lines] == known_positives.rows[starts[lines, None] + place]
    many = np.flatnonzero(~few)
    for start in range(0, len(many), LINES_PER_BLOCK):
        block = many[start : start + LINES_PER_BLOCK]
        _, keys, candidate_keys = _pair_keys(known_positives, anchors[block], candidates[block])
        is_positive[block] = is_in_sorted(candidate_keys, np.sort(keys))
    return is_positive


def is_in_sorted(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """bool, of the shape of `values`: whether each is in `among` (M,), ascending.

    `np.isin` would sort the values as well, and copy them several times.
    """
    if not len(among):
        return np.zeros(values.shape, bool)
    return among[np.searchsorted(among, values).clip(max=len(among) - 1)] == values


def leave_out(own: np.ndarray, scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The first k of rankings (Q, n), best first, without the row `own` (Q,) of each.

    own: PADDING where there is none. A ranking with too few rows ends with -inf and PADDING.
    """
    is_own = (rows == own[:, None]) & (rows != PADDING)
    order = np.argsort(is_own, axis=1, kind="stable")[:, :k]
    scores, rows = np.where(is_own, np.float32(-np.inf), scores), np.where(is_own, np.int32(PADDING), rows)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)


def repeats(rows: np.ndarray) -> np.ndarray:
    """(B, n) bool: whether an earlier column of the same line has the same value."""
    order = np.argsort(rows, axis=1, kind="stable")
    ranked = np.take_along_axis(rows, order, 1)
    repeated = np.zeros(rows.shape, bool)
    np.put_along_axis(repeated, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], 1)
    return repeated


def grades_of(known_positives: KnownPositives, anchors: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """(B, n) int32: the grade of candidates[i, j] for anchors[i], 0 if it is not a known positive.

    Every anchor must have at least one known positive.
    """
    positions, positive_keys, candidate_keys = _pair_keys(known_positives, anchors, candidates)
    order = np.argsort(positive_keys)
    insertion = np.searchsorted(positive_keys, candidate_keys, sorter=order)
    nearest = order[insertion.clip(max=len(order) - 1)]
    is_positive = (positive_keys[nearest] == candidate_keys) & (candidates != PADDING)
    return np.where(is_positive, known_positives.grades[positions[nearest]], 0)


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """(N + 1,) int64: the start of each of N consecutive runs of these lengths, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _pair_keys(
    known_positives: KnownPositives, anchors: np.ndarray, candidates: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number each pair of an anchor and a row, so that pairs can be compared as integers.

    Returns the positions of the anchors' positives in `known_positives.rows` (P,), the keys of these
    pairs (P,), and the keys of the candidates' pairs (B, n).
    """
    offsets, positions = selected(known_positives.offsets, anchors)
    rows = known_positives.rows[positions]
    base = int(max(candidates.max(initial=0), rows.max(initial=0))) + 2  # also above PADDING of the next line
    anchor = np.arange(len(anchors))
    return (positions, np.repeat(anchor, np.diff(offsets)) * base + rows, anchor[:, None] * base + candidates)
