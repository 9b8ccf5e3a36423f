"""Filters by a candidate's rank, or by its score: alone, or compared with the positive's."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from pyserini_ance.negatives.filters.base import Candidates, Filter
from pyserini_ance.negatives.source import MOST_FILLED
from pyserini_ance.negatives.table import PADDING

FEW = 8  # an anchor with fewer candidates has too few


class RangeMin(Filter):
    """Removes the first `ranks` candidates of each ranking, known positives included.

    The first hits of a good retriever are often relevant but not judged. FlagEmbedding's `range_for_sampling`
    counts in the same way.
    """

    kind: Literal["range_min"] = "range_min"
    ranks: PositiveInt
    """The number of top-ranked candidates to remove."""

    @property
    def extra_candidates(self) -> int:  # type: ignore[override]
        return self.ranks

    def mask(self, candidates: Candidates) -> np.ndarray:
        return np.broadcast_to(np.arange(candidates.rows.shape[1]) < self.ranks, candidates.rows.shape)


class RangeMax(Filter):
    """Removes all but the first `ranks` candidates of each ranking, known positives not counted.

    What later filters remove is not replaced by later candidates. Candidates that earlier filters remove are
    not counted: before `range_min` it keeps ranks up to `ranks`, after it so many ranks more.
    With `answers`: microsoft/ANCE examines the first 100 of the top 200 that are not the positive, and keeps
    those without an answer (run_ann_data_gen_dpr.py); DANCE's copy of these lines has the comment "BUG?".
    """

    kind: Literal["range_max"] = "range_max"
    ranks: PositiveInt
    """The number of top-ranked candidates that may be negatives."""

    def mask(self, candidates: Candidates) -> np.ndarray:
        anchor_set, rows = candidates.anchor_set, candidates.rows
        never = anchor_set.never_negative(anchor_set.anchors, rows)
        return np.cumsum((rows != PADDING) & ~never, axis=1, dtype=np.int32) > self.ranks


class MaxScore(Filter):
    """Removes candidates that score above `max_score`, whatever the positive scores.

    Scores are the source's own.
    Source: Merrick et al. 2024, arXiv:2405.05374 (Snowflake Arctic-Embed), which tunes a maximum relevance
    for hard negatives.
    """

    kind: Literal["max_score"] = "max_score"
    max_score: float
    """The highest score that a negative may have, on the source's scale."""

    def mask(self, candidates: Candidates) -> np.ndarray:
        return candidates.scores > self.max_score


class AbsoluteMargin(Filter):
    """Removes candidates that score above p - `margin`, where p is the score of the anchor's best known
    positive.

    Scores are the source's own. Nothing is removed for an anchor whose positive has no score: a ranking may
    not contain it.
    Source: the absolute margin of Moreira et al. 2024, arXiv:2407.15831 (NV-Retriever, "TopK-MarginPos").
    """

    kind: Literal["absolute_margin"] = "absolute_margin"
    margin: float = Field(ge=0)
    """The distance to the positive's score that a negative must keep, on the source's scale."""
    needs_positive_scores: ClassVar[bool] = True

    def mask(self, candidates: Candidates) -> np.ndarray:
        return candidates.scores > (candidates.positive_scores - self.margin)[:, None]


class RelativeMargin(Filter):
    """Removes candidates that score above p - `margin` * (p - origin), with scores as `AbsoluteMargin`.

    Source: Moreira et al. 2024, arXiv:2407.15831 (NV-Retriever, "TopK-PercPos": 0.95 of a cosine, a margin
    of 0.05 with `origin: zero`).
    """

    kind: Literal["relative_margin"] = "relative_margin"
    margin: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = 0.05
    """The share of the positive's score, counted from `origin`, by which a negative must stay below it.
    `auto` sets both: 0.05 from `zero`, or 0.3 from `lowest` if the first leaves more than a tenth of the
    anchors fewer than 8 candidates. Each refresh decides anew."""
    origin: Literal["zero", "lowest"] = "zero"
    """What the positive's score is counted from. `zero` suits the cosines of a trained encoder, as in the
    paper; where unrelated texts have a cosine of 0.9, all candidates are within 5 % of the positive. `lowest`
    is the lowest score in the anchor's ranking, and suits any scores; a positive that ranks behind all
    candidates then tells nothing of them, and none is removed."""
    needs_positive_scores: ClassVar[bool] = True

    @model_validator(mode="after")
    def check_origin(self) -> "RelativeMargin":
        if self.margin == "auto" and self.origin != "zero":
            raise ValueError("margin: auto chooses the origin too; remove origin")
        return self

    def mask(self, candidates: Candidates) -> np.ndarray:
        if isinstance(self.margin, str):
            strict = RelativeMargin().mask(candidates)
            anchor_set, rows = candidates.anchor_set, candidates.rows
            left = (rows != PADDING) & ~strict & ~anchor_set.never_negative(anchor_set.anchors, rows)
            short = candidates.snapshot.world.gather_rows(left.sum(1) < FEW)
            if short.sum() <= MOST_FILLED * len(short):
                return strict
            return RelativeMargin(margin=0.3, origin="lowest").mask(candidates)
        scores, positive = candidates.scores, candidates.positive_scores
        if self.origin == "zero":
            # Differs from the paper: it uses p * (1 - margin), which would be above a negative p; its cosines
            # were positive.
            return scores > (positive - self.margin * np.abs(positive))[:, None]
        lowest = np.where(np.isfinite(scores), scores, np.inf).min(1, initial=np.inf)
        limit = np.where(positive > lowest, positive - self.margin * (positive - lowest), np.inf)
        return scores > limit[:, None]
