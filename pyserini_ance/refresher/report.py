"""What a generation of negatives looks like: ranks of the positives, margins, turnover."""

import numpy as np

from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import PADDING, NegativeTable, turnover

PAIRS_PER_BLOCK = 65_536


def table_report(table: NegativeTable, previous: NegativeTable | None, snapshot: Snapshot, source: MinedSource) -> dict:
    """Counts for any table; for one mined with the model also `positive_ranks` and `margin`.

    `positive_ranks`: for each training query, in row order, the rank (from 1) of its best known positive in the
    ranking that was mined, None where it is not there. `margin`: score of the query's best positive minus the mean
    score of its candidates, at the 10th, 50th and 90th percentile and on average.
    """
    report = {
        "kind": source.kind,
        "candidates": int(table.counts.sum()),
        "dropped": table.dropped,
        "new_share": None if previous is None else round(turnover(table, previous), 4),
    }
    if not source.refreshed or snapshot.ranking is None:
        return report
    hits = _hits(snapshot)
    ranks = np.where(hits.any(1), hits.argmax(1) + 1, 0)
    return {
        **report,
        "positive_ranks": [int(rank) if rank else None for rank in ranks],
        "margin": _quantiles(_margins(table, snapshot)),
    }


def _hits(snapshot: Snapshot) -> np.ndarray:
    """(A, k) bool: known positives in the whole ranking that the snapshot has made."""
    _, found = snapshot.ranking
    return known_positive(snapshot.split.qrels, snapshot.query_rows, found)


def _margins(table: NegativeTable, snapshot: Snapshot) -> np.ndarray:
    """(A,) of the queries that have candidates."""
    qrels, queries, documents = snapshot.split.qrels, snapshot.query_vectors, snapshot.document_vectors
    counts = np.diff(qrels.relevant_offsets)
    anchors = np.repeat(snapshot.query_rows, counts)
    blocks = [slice(start, start + PAIRS_PER_BLOCK) for start in range(0, len(anchors), PAIRS_PER_BLOCK)]
    pairs = np.concatenate([np.einsum("pd,pd->p", queries[anchors[block]], documents[qrels.relevant_rows[block]]) for block in blocks])
    positive = np.maximum.reduceat(pairs, qrels.relevant_offsets[:-1])
    there = table.candidates != PADDING
    totals = np.where(there, table.scores, 0.0).sum(1)
    some = table.counts > 0
    return positive[some] - totals[some] / table.counts[some]


def _quantiles(values: np.ndarray) -> dict[str, float]:
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    return {"mean": round(float(values.mean()), 4), "p10": round(float(p10), 4), "p50": round(float(p50), 4), "p90": round(float(p90), 4)}
