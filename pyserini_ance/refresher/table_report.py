"""Reports on newly mined tables of negatives: candidate counts, ranks of the positives, score margins,
turnover."""

from typing import Any

import numpy as np

from pyserini_ance.data.positives import is_known_positive
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import TableSource
from pyserini_ance.negatives.table import PADDING, NegativeTable, turnover


def table_report(
    table: NegativeTable,
    previous: NegativeTable | None,
    snapshot: Snapshot,
    source: TableSource,
    anchor_set: AnchorSet,
) -> dict[str, Any]:
    """Describe a table: its counts and, if its anchors were searched with, ranks of positives and the score
    margin.

    `origins` counts candidates by source if there are several. `new_share` is the share of candidates that
    `previous` lacks; None if it has other anchors, as from one query chunk to the next. `positive_ranks` are
    ranks in the mined ranking, in the order of the anchors. `margin` is the score of an anchor's best
    positive minus the mean score of its candidates: percentiles and mean over the anchors, if the table's
    scores are the anchors' own.
    """
    new_share = None
    if previous is not None and np.array_equal(previous.anchors, table.anchors):
        new_share = round(turnover(table, previous), 4)
    report = {
        "kind": source.kind,
        "candidates": int(table.counts.sum()),
        "dropped": table.dropped,
        "new_share": new_share,
    }
    if counts := table.origin_counts():
        report["origins"] = counts
    ranking = snapshot.ranking(anchor_set)
    if ranking is None or not any(leaf.scores_comparable for leaf in source.components):
        return report
    report["positive_ranks"] = positive_ranks(anchor_set, ranking[1])
    if source.scores_comparable:
        report["margin"] = _summary(_margins(table, snapshot.positive_scores(anchor_set)))
    return report


def positive_ranks(anchor_set: AnchorSet, rows: np.ndarray) -> list[int | None]:
    """Return the rank (from 1) of each anchor's best known positive in its ranking `rows` (A, k); None if
    absent."""
    hits = is_known_positive(anchor_set.known_positives, anchor_set.anchors, rows)
    ranks = np.where(hits.any(1), hits.argmax(1) + 1, 0)
    return [int(rank) if rank else None for rank in ranks]


def _margins(table: NegativeTable, positive_scores: np.ndarray) -> np.ndarray:
    """Return the margin of each anchor with candidates, from the scores (A,) of the positives."""
    totals = np.where(table.candidates != PADDING, table.scores, 0.0).sum(1)
    has_candidates = table.counts > 0
    return positive_scores[has_candidates] - totals[has_candidates] / table.counts[has_candidates]


def _summary(values: np.ndarray) -> dict[str, float]:
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    named = {"mean": values.mean(), "p10": p10, "p50": p50, "p90": p90}
    return {name: round(float(value), 4) for name, value in named.items()}
