"""The mean of teachers, such as BM25 and the retriever in training."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext
from pyserini_ance.recipe.components import component_of


class Student(Teacher):
    """The retriever itself: scores of the checkpoint that the tables are mined with."""

    kind: Literal["student"] = "student"

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        snapshot = context.snapshot
        context.origins[self.kind] = snapshot.weights
        return snapshot.score(snapshot.query_vectors, pairs.queries, pairs.documents)


class Hybrid(Teacher):
    """Each teacher's scores of an anchor's candidates are scaled to 0..1; their mean is the score.

    A candidate without a score gets the lowest of its anchor, 0, as in Pyserini's `fuse --method normalize`.
    Grades of `llm` are divided by 3; a pair without one has the mean of the other teachers."""

    kind: Literal["hybrid"] = "hybrid"
    teachers: tuple[Annotated[Teacher, component_of("teacher")], ...] = Field(
        default=({"kind": "bm25"}, {"kind": "student"}), validate_default=True, min_length=1
    )
    """The teachers to add up."""

    compares_candidates: ClassVar[bool] = True
    highest = 1.0

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        total, asked = np.zeros(len(pairs), np.float32), np.zeros(len(pairs), np.float32)
        for teacher in self.teachers:
            scores = teacher.score(pairs, context)
            is_asked = ~np.isnan(scores) | (teacher.highest is None)
            of_pairs = scores / teacher.highest if teacher.highest else min_max(scores, pairs.groups)
            total, asked = total + np.where(is_asked, of_pairs, 0), asked + is_asked
        return np.where(asked, total / np.maximum(asked, 1), np.nan).astype(np.float32)


def min_max(scores: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(P,) float32: the scores (P,) scaled to 0..1 within each group (P,), ascending from 0; NaN becomes 0.

    A group without a score, or with one value only, is 0.
    """
    if not len(scores):
        return scores
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    low, high = np.fmin.reduceat(scores, starts)[groups], np.fmax.reduceat(scores, starts)[groups]
    spread = high - low
    scaled = (scores - low) / np.where(spread > 0, spread, 1)
    return np.nan_to_num(scaled, nan=0.0).astype(np.float32)
