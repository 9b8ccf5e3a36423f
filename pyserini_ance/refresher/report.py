"""What a generation of negatives looks like: ranks of the positives, margins, turnover."""

import numpy as np

from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import PADDING, NegativeTable, turnover


def table_report(table: NegativeTable, previous: NegativeTable | None, snapshot: Snapshot, source: MinedSource) -> dict:
    """Counts for any table; for one mined with the model also `positive_ranks` and `margin`.

    `positive_ranks`: for each anchor, in row order, the rank (from 1) of its best known positive in the
    ranking that was mined, None where it is not there. `margin`: score of the anchor's best positive minus the mean
    score of its candidates, at the 10th, 50th and 90th percentile and on average.
    """
    comparable = previous is not None and np.array_equal(previous.anchors, table.anchors)  # not from one chunk of queries to the next
    report = {
        "kind": source.kind,
        "candidates": int(table.counts.sum()),
        "dropped": table.dropped,
        "new_share": round(turnover(table, previous), 4) if comparable else None,
    }
    ranking = snapshot.ranking(table.anchor_side)
    if not source.refreshed or ranking is None:
        return report
    direction = snapshot.direction(table.anchor_side)
    hits = known_positive(direction.relation, direction.anchors, ranking[1])
    ranks = np.where(hits.any(1), hits.argmax(1) + 1, 0)
    return {
        **report,
        "positive_ranks": [int(rank) if rank else None for rank in ranks],
        "margin": _quantiles(_margins(table, snapshot.positive_scores(direction.anchor))),
    }


def _margins(table: NegativeTable, positive: np.ndarray) -> np.ndarray:
    """(A,) of the anchors that have candidates, from the scores of their positives (A,)."""
    there = table.candidates != PADDING
    totals = np.where(there, table.scores, 0.0).sum(1)
    some = table.counts > 0
    return positive[some] - totals[some] / table.counts[some]


def _quantiles(values: np.ndarray) -> dict[str, float]:
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    return {"mean": round(float(values.mean()), 4), "p10": round(float(p10), 4), "p50": round(float(p50), 4), "p90": round(float(p90), 4)}
