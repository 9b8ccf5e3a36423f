"""Scores from a file, made beforehand by any model."""

from pathlib import Path
from typing import Literal

import numpy as np

from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext, scores_in_file

KEY = "stages.<stage>.terms.<term>.teacher.file"


class RankingTeacher(Teacher):
    """Scores of a TREC run, or of training files of Tevatron and FlagEmbedding that list scores.

    A pair that the file does not list has no score: it does not count in the loss.
    """

    kind: Literal["ranking"] = "ranking"
    file: Path
    """The file of the scores, in a form of `data/scored_pairs.py`."""

    @property
    def files(self) -> tuple[Path, ...]:
        return (find_file(self.file, KEY),)

    def score(self, pairs: Pairs, context: TeacherContext) -> np.ndarray:
        scored = scores_in_file(self.files[0], f"{self.kind} {self.file}", context)
        return scored.of(pairs.queries, pairs.documents)
