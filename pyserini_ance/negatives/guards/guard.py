"""Guard: what a recipe lists under `guards:` of a source; and how several of them screen what the source has found."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.guards import KNOWN_POSITIVES, known_positive, take_out
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.parts import Part

Screened = tuple[np.ndarray, np.ndarray, dict[str, int]]  # rows and scores (A, width), and how many each rule took out


class Guard(Part):
    """One rule. A `costly` one is asked only about candidates that all others leave, and only as deep as a table needs them. One
    that `compares` asks the source for the scores of positives.
    """

    costly: ClassVar[bool] = False
    compares: ClassVar[bool] = False

    @property
    def extra_depth(self) -> int:
        """Candidates that the rule is sure to take out of each ranking: so many more are fetched."""
        return 0

    def check_data(self, direction: Direction) -> None:
        """Raises ValueError or RuntimeError, before anything is trained, when the rule cannot be applied to this data."""

    @abstractmethod
    def mark(self, candidates: Candidates) -> np.ndarray:
        """(A, n) bool: the candidates to take out. What it says of PADDING does not matter."""


def screen(found: Candidates, guards: Sequence[Guard], width: int) -> Screened:
    """The first `width` candidates of each anchor that are no known positives and that no guard marks."""
    known = known_positive(found.direction.relation, found.direction.anchors, found.rows)
    marks = {KNOWN_POSITIVES: known, **_marks([guard for guard in guards if not guard.costly], found)}
    costly = [guard for guard in guards if guard.costly]
    if not costly:
        return take_out(found.rows, found.scores, marks, width)
    rows, scores, dropped = take_out(found.rows, found.scores, marks, found.rows.shape[1])
    left = replace(found, rows=rows, scores=scores)
    rows, scores, more = take_out(rows, scores, _marks_as_deep_as_needed(costly, left, width), width)
    return rows, scores, dropped | more


def _marks(guards: Sequence[Guard], found: Candidates) -> dict[str, np.ndarray]:
    """By kind; a guard looks only at what those before it leave."""
    marks: dict[str, np.ndarray] = {}
    left = found
    for guard in guards:
        mark = guard.mark(left) & (left.rows != PADDING)
        marks[guard.kind] = marks[guard.kind] | mark if guard.kind in marks else mark
        left = left.only(~mark)
    return marks


def _marks_as_deep_as_needed(guards: Sequence[Guard], found: Candidates, width: int) -> dict[str, np.ndarray]:
    """Look at the first `width` of each anchor; then, where some were marked, at as many more, until there are enough or no more."""
    marks = {guard.kind: np.zeros(found.rows.shape, bool) for guard in guards}
    left, seen = found.rows != PADDING, np.zeros(found.rows.shape, bool)
    while True:
        fresh = left & ~seen
        fresh &= np.cumsum(fresh, axis=1, dtype=np.int32) <= width - (left & seen).sum(1, keepdims=True)
        if not fresh.any():
            return marks
        for kind, mark in _marks(guards, found.only(fresh)).items():
            marks[kind] |= mark
            left &= ~mark
        seen |= fresh
