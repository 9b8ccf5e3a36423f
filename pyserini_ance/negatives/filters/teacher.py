"""Ask a teacher which candidates are relevant, and drop them or make them positives of their anchor."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from pyserini_ance.negatives.filters.base import Candidates, Filter
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.negatives.teachers.base import Teacher, TeacherContext, score_keys
from pyserini_ance.recipe.components import component_of


class TeacherFilter(Filter):
    """Finds the candidates relevant that a teacher scores above `max_score`, or above p - `margin` * |p|.

    p is the teacher's score of the anchor's best known positive. Give one of the two settings. A candidate
    without a score of the teacher is not relevant; neither is any with `margin` if no positive has a score.
    Sources: Qu et al. 2021, arXiv:2010.08191 (RocketQA) drop what a cross-encoder finds relevant; Thakur et
    al. 2025, arXiv:2505.16967 (RLHN) make positives of it, judged there by language models.
    """

    kind: Literal["teacher"] = "teacher"
    teacher: Annotated[Teacher, component_of("teacher")]
    """The teacher, with the settings of a term's `teacher:`."""
    max_score: float | None = None
    """The highest score that a negative may have, on the teacher's scale; null: see `margin`."""
    margin: float | None = Field(default=None, ge=0, lt=1)
    """The share of the best positive's score by which a negative must stay below it, by the teacher; 0: it
    may score as much as the positive. Null: see `max_score`."""
    then: Literal["drop", "promote"] = "drop"
    """Leave relevant candidates out (`drop`), or make them positives of their anchor as long as this table is
    in use (`promote`)."""
    expensive: ClassVar[bool] = True

    @model_validator(mode="after")
    def check_one_threshold(self) -> "TeacherFilter":
        if (self.max_score is None) == (self.margin is None):
            raise ValueError("give one of `max_score` and `margin`; list the filter twice to apply both")
        return self

    @property
    def compares_candidates(self) -> bool:  # type: ignore[override]
        return self.teacher.compares_candidates

    @property
    def promotes(self) -> bool:
        return self.then == "promote"

    def mask(self, candidates: Candidates) -> np.ndarray:
        anchor_set, snapshot = candidates.anchor_set, candidates.snapshot
        # A view of the anchors that have candidates left: others may be many, and their positives cost.
        chosen = (candidates.rows != PADDING).any(1)
        anchors, rows = anchor_set.anchors[chosen], candidates.rows[chosen]
        positives = anchor_set.known_positives.subset(anchors)
        of_positives = np.repeat(anchors, positives.counts)
        keys = [anchor_set.pair_keys(anchors[:, None], rows)[rows != PADDING]]
        if self.margin is not None or self.compares_candidates:
            keys.append(anchor_set.pair_keys(of_positives, positives.rows))
        # The pairs of all processes are scored together: they share them evenly, whoever needs them.
        every = np.unique(snapshot.world.gather_rows(np.unique(np.concatenate(keys))))
        mask = np.zeros(candidates.rows.shape, bool)
        if not len(every):
            return mask
        scores = score_keys(self.teacher, every, anchor_set, TeacherContext(snapshot, snapshot.judges))
        limit: float | np.ndarray | None = self.max_score
        if self.margin is not None:
            best = np.fmax.reduceat(scores.of(of_positives, positives.rows), positives.offsets[:-1])
            limit = (best - self.margin * np.abs(best))[:, None]
        mask[chosen] = scores.of(anchors[:, None], rows) > limit
        return mask
