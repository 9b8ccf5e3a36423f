"""Advice before training: how hard and how doubtful the candidates of one mining are, what filters leave of
them, and which method follows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.evaluation.tables import table
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.filters.base import KNOWN_POSITIVES, Candidates, Filter, filter_masks
from pyserini_ance.negatives.filters.ranks_and_scores import RangeMin, RelativeMargin
from pyserini_ance.negatives.filters.teacher import TeacherFilter
from pyserini_ance.negatives.filters.texts import Duplicates
from pyserini_ance.negatives.rankings import Bm25 as Bm25Source
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import PADDING, NegativeTable, is_in_line
from pyserini_ance.negatives.teachers.hybrid import Hybrid
from pyserini_ance.pipeline.mining import NUM_NEGATIVES, mine_negatives
from pyserini_ance.recipe.models import Bm25

DEPTH = 200  # the papers' top_k
BANDS = ((1, 5), (6, 20), (21, 50), (51, DEPTH))
TOP_K = 50  # of the recipes
MOST_QUERIES = 2_000
LEAST_HARD = 0.2  # of ranks 1-5, above the positive: with fewer no set gained (docs/lab-notes/winning.md)
ABOVE = "above the positive"
SHORT = f"fewer than {NUM_NEGATIVES}"
LEGEND = (
    "- suspected: share that BM25 and the encoder, added up, rank above the query's best positive",
    "- of the way to the positive: median of a candidate's score from the query's mean over all documents, "
    "divided by the positive's",
    f"- in BM25's: share that is among BM25's first {DEPTH}",
    "- positive found: share of queries with a positive at these ranks or before",
    f"- {SHORT}: share of queries that get so few of {TOP_K} candidates",
)
TEACHER = TeacherFilter(teacher=Hybrid(), margin=0)
FILTERS: dict[str, Sequence[Filter]] = {
    "none": (),
    "duplicates": [Duplicates()],
    "range_min 5": [RangeMin(ranks=5)],
    "relative_margin 0.05": [RelativeMargin(margin=0.05)],
    "relative_margin auto": [RelativeMargin(margin="auto")],
    "teacher": [TEACHER],
}


@dataclass(frozen=True)
class Advice:
    """What one mining tells. Shares are from 0 to 1.

    bands: a row for each range of ranks. filters: a row for each choice of filters, with the candidates that
    it leaves of the first `TOP_K` and the share of the queries that get fewer than `NUM_NEGATIVES`.
    seconds: time by part.
    """

    bands: Sequence[dict[str, Any]]
    filters: Sequence[dict[str, Any]]
    seconds: dict[str, float]

    @property
    def method(self) -> str:
        """The recipe of `_methods/` that fits: a teacher, where there is much to learn."""
        return "distilled" if self.bands[0][ABOVE] >= LEAST_HARD else "recommended"

    def describe(self) -> str:
        """Tables, what a refresh costs, and the suggestion with its reason."""
        tables = []
        for rows in (self.bands, self.filters):
            shown = [{k: f"{v:.0%}" if isinstance(v, float) else v for k, v in row.items()} for row in rows]
            tables.append(table(shown, list(shown[0])))
        seconds = ", ".join(f"{part} {value:.1f}" for part, value in self.seconds.items())
        follows = "a teacher pays" if self.method == "distilled" else "a teacher adds little"
        suggestion = (
            f"suggestion: extends: [_base/minilm, _methods/{self.method}]\n"
            f"{self.bands[0][ABOVE]:.0%} of the first candidates score above the positive: {follows}"
        )
        return "\n\n".join([*tables, "\n".join(LEGEND), f"seconds of this mining: {seconds}", suggestion])


class Survey(Ann):
    """`ann`, which compares its candidates with BM25's and a teacher's scores of them."""

    top_k: int = DEPTH
    needs: ClassVar[frozenset[str]] = frozenset({"bm25"})
    _filters: dict[str, Sequence[Filter]] = PrivateAttr(default_factory=dict)
    _found: Advice | None = PrivateAttr(default=None)

    def mine(self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext) -> NegativeTable:
        if len(anchors := anchor_set.anchors) > MOST_QUERIES:
            sample = np.sort(context.rng().choice(anchors, MOST_QUERIES, replace=False))
            anchor_set = replace(anchor_set, chunk=sample)
        k = DEPTH + self.extra_candidates(anchor_set)
        scores, rows = snapshot.search("query", anchor_set.anchors, "document", k)
        found = Candidates(snapshot, anchor_set, rows, scores, lambda: snapshot.positive_scores(anchor_set))
        bm25 = Bm25Source(top_k=DEPTH).mine(snapshot, anchor_set, context).candidates
        self._found = look(found, bm25, self._filters)
        return self.table_of(found, DEPTH)


def look(found: Candidates, bm25: np.ndarray, filters: dict[str, Sequence[Filter]]) -> Advice:
    """The advice of a ranking; `bm25` (A, m) are BM25's candidates of the same anchors."""
    snapshot, anchors, positive = found.snapshot, found.anchor_set.anchors, found.positive_scores[:, None]
    masks = {name: filter_masks(found, chosen, TOP_K) for name, chosen in filters.items()}
    known = masks["none"][KNOWN_POSITIVES]
    negative = (found.rows != PADDING) & ~np.logical_or.reduce([*masks["none"].values()])
    suspected, in_bm25 = masks["teacher"][TEACHER.removal] & negative, is_in_line(found.rows, bm25)
    mean = snapshot.query_vectors[anchors] @ np.mean(snapshot.document_vectors.own, 0, np.float32)
    of_the_way = (found.scores - mean[:, None]) / (positive - mean[:, None])
    bands, ranks = [], np.arange(1, negative.shape[1] + 1)
    for first, last in BANDS:
        part = negative & (first <= ranks) & (ranks <= last)
        bands.append(
            {
                "ranks": f"{first}-{last}",
                "candidates": int(part.sum()),
                "suspected": _share(suspected, part),
                ABOVE: _share(found.scores > positive, part),
                "of the way to the positive": float(np.median(of_the_way[part])) if part.any() else 0.0,
                "in BM25's": _share(in_bm25, part),
                "positive found": float(known[:, :last].any(1).mean()),
            }
        )
    rows: list[dict[str, Any]] = []
    for name, of_filters in masks.items():
        left = negative & ~reduce(np.logical_or, of_filters.values())
        left &= np.cumsum(left, axis=1) <= TOP_K
        counts = left.sum(1)
        row = {
            "filter": name,
            "candidates left": f"{counts.mean():.1f}",
            "suspected": _share(suspected, left),
        }
        rows.append({**row, SHORT: float((counts < NUM_NEGATIVES).mean())})
    return Advice(bands, rows, snapshot.seconds)


def _share(values: np.ndarray, part: np.ndarray) -> float:
    """The share of true `values` in a part, both (A, n) bool; 0 of nothing."""
    return float(values[part].mean()) if part.any() else 0.0


def advise(
    encoder: Encoder, collection: Collection, split: str, filters: Sequence[Filter] = (), **settings: Any
) -> Advice:
    """Mine once with an encoder for at most `MOST_QUERIES` queries of a split, and look at the candidates.

    filters: also shown, together, as the row `given`. settings: seed, encoding, cache and world, as of
    `mine_negatives`; raises what it raises.
    """
    for one in filters:
        one.check_data(AnchorSet.of(collection, collection.split(split), "query"))
    survey = Survey(num_negatives=1)
    survey._filters = {**FILTERS, **({"given": filters} if filters else {})}
    mine_negatives(encoder, collection, survey, split, choose_all=True, bm25=Bm25(hits=DEPTH), **settings)
    assert survey._found is not None, "mining calls the source"
    return survey._found
