"""What a generation of negatives looks like: ranks of the positives, margins, turnover."""

import numpy as np

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import TableSource
from pyserini_ance.negatives.table import PADDING, NegativeTable, turnover


def table_report(table: NegativeTable, previous: NegativeTable | None, snapshot: Snapshot, source: TableSource) -> dict:
    """Counts for any table, by `origins` where candidates have several; where anchors were searched with, also ranks and margin.

    `positive_ranks` are in the ranking that was mined, in the order of anchors. `margin`: score of the anchor's best positive minus the mean
    score of its candidates, at the 10th, 50th and 90th percentile and on average; of tables whose scores are the anchors' own.
    """
    comparable = previous is not None and np.array_equal(previous.anchors, table.anchors)  # not from one chunk of queries to the next
    report = {
        "kind": source.kind,
        "candidates": int(table.counts.sum()),
        "dropped": table.dropped,
        "new_share": round(turnover(table, previous), 4) if comparable else None,
    }
    report |= {"origins": counts} if (counts := table.origin_counts()) else {}
    ranking = snapshot.ranking(table.anchor_side)
    if ranking is None or not any(leaf.ranked for leaf in source.leaves):
        return report
    direction = snapshot.direction(table.anchor_side)
    report["positive_ranks"] = positive_ranks(direction, ranking[1])
    return {**report, "margin": _quantiles(_margins(table, snapshot.positive_scores(direction.anchor)))} if source.ranked else report


def positive_ranks(direction: Direction, found: np.ndarray) -> list[int | None]:
    """Of each anchor the rank (from 1) of its best known positive in the rows `found` (A, k), None where it is not there."""
    hits = known_positive(direction.relation, direction.anchors, found)
    ranks = np.where(hits.any(1), hits.argmax(1) + 1, 0)
    return [int(rank) if rank else None for rank in ranks]


def _margins(table: NegativeTable, positive: np.ndarray) -> np.ndarray:
    """(A,) of the anchors that have candidates, from the scores of their positives (A,)."""
    there = table.candidates != PADDING
    totals = np.where(there, table.scores, 0.0).sum(1)
    some = table.counts > 0
    return positive[some] - totals[some] / table.counts[some]


def _quantiles(values: np.ndarray) -> dict[str, float]:
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    return {"mean": round(float(values.mean()), 4), "p10": round(float(p10), 4), "p50": round(float(p50), 4), "p90": round(float(p90), 4)}
