"""The retriever itself, as it was at the last refresh: useful as one part of a hybrid."""

from typing import Literal

import numpy as np

from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext


class Student(Teacher):
    """Scores of the checkpoint that the tables are mined with."""

    kind: Literal["student"] = "student"

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        snapshot = context.snapshot
        context.origins[self.kind] = snapshot.weights
        return snapshot.score(snapshot.query_vectors, pairs.queries, pairs.documents)
