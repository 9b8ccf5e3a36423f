"""What a generation of negatives looks like: ranks of the positives, margins, turnover."""

import numpy as np

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import PADDING, NegativeTable, turnover

PAIRS_PER_BLOCK = 65_536


def table_report(table: NegativeTable, previous: NegativeTable | None, snapshot: Snapshot, source: MinedSource) -> dict:
    """Counts for any table, by `origins` where candidates have several; where anchors were searched with, also ranks and margin.

    `positive_ranks`: for each anchor, in row order, the rank (from 1) of its best known positive in the
    ranking that was mined, None where it is not there. `margin`: score of the anchor's best positive minus the mean
    score of its candidates, at the 10th, 50th and 90th percentile and on average; of tables whose scores are the anchors' own.
    """
    report = {
        "kind": source.kind,
        "candidates": int(table.counts.sum()),
        "dropped": table.dropped,
        "new_share": None if previous is None else round(turnover(table, previous), 4),
    }
    report |= {"origins": counts} if (counts := table.origin_counts()) else {}
    ranking = snapshot.ranking(table.anchor_side)
    if ranking is None or not any(leaf.ranked for leaf in source.leaves):
        return report
    direction = snapshot.direction(table.anchor_side)
    hits = known_positive(direction.relation, direction.anchors, ranking[1])
    ranks = np.where(hits.any(1), hits.argmax(1) + 1, 0)
    report["positive_ranks"] = [int(rank) if rank else None for rank in ranks]
    return {**report, "margin": _quantiles(_margins(table, snapshot, direction))} if source.ranked else report


def _margins(table: NegativeTable, snapshot: Snapshot, direction: Direction) -> np.ndarray:
    """(A,) of the anchors that have candidates."""
    relation, own, others = direction.relation, snapshot.vectors(direction.anchor), snapshot.vectors(direction.candidate)
    anchors = np.repeat(np.arange(len(relation.counts)), relation.counts)
    blocks = [slice(start, start + PAIRS_PER_BLOCK) for start in range(0, len(anchors), PAIRS_PER_BLOCK)]
    pairs = np.concatenate([np.einsum("pd,pd->p", own[anchors[block]], others[relation.rows[block]]) for block in blocks])
    positive = np.maximum.reduceat(pairs, relation.offsets[direction.anchors])
    there = table.candidates != PADDING
    totals = np.where(there, table.scores, 0.0).sum(1)
    some = table.counts > 0
    return positive[some] - totals[some] / table.counts[some]


def _quantiles(values: np.ndarray) -> dict[str, float]:
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    return {"mean": round(float(values.mean()), 4), "p10": round(float(p10), 4), "p50": round(float(p50), 4), "p90": round(float(p90), 4)}
