"""Mine a table of negatives with one checkpoint, and report its counts, ranks of positives and margins."""

from typing import Any

import numpy as np

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.mined import AUTO, SearchedSource
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext, TableSource, mine_in_shares
from pyserini_ance.negatives.table import NegativeTable, turnover


def mine_table(
    source: TableSource,
    snapshot: Snapshot,
    anchor_set: AnchorSet,
    context: MiningContext,
    previous: NegativeTable | None = None,
    promoted: np.ndarray | None = None,
) -> tuple[NegativeTable, dict[str, Any]]:
    """Mine a table of the snapshot's checkpoint, with a report; called by all processes.

    previous: the table that the report compares with. promoted: (P, 2) pairs that the table makes positives.

    The report has the table's counts and, if its ranking has the positives, their ranks and the score margin.
    `left_out` counts the anchors without `min_candidates`, if there are any. `promoted` counts the candidates
    that became positives, if a filter promotes. `origins` counts candidates by source if there are several.
    `new_share` is the share of candidates that `previous` lacks; None if it has other anchors, as from one
    query chunk to the next. `top_k` is the number behind `top_k: auto`, if a source has that. `positives`
    counts those in the ranking (`ranked`) and has the mean reciprocal rank; the ranks are in a file of the
    generation. `margin` is the score of an anchor's best positive minus the mean score of its candidates:
    percentiles and mean over the anchors that have both. `judged_by` names the teachers that filters asked.
    """
    snapshot.judges.clear()
    table = mine_in_shares(source, snapshot, anchor_set, context)
    table = table if promoted is None else table.promoting(promoted)
    new_share = None
    if previous is not None and np.array_equal(previous.anchors, table.anchors):
        new_share = round(turnover(table, previous), 4)
    report: dict[str, Any] = {"kind": source.kind, "candidates": int(table.counts.sum())}
    report |= {"dropped": table.dropped, "new_share": new_share}
    for part in source.components:
        if isinstance(part, SearchedSource) and part.top_k == AUTO:  # the same number for each
            report["top_k"] = part.top_k_of(anchor_set)
    if left_out := len(anchor_set.anchors) - len(table.anchors):
        report["left_out"] = left_out
    if table.promoted is not None:
        report["promoted"] = len(table.promoted)
    if counts := table.origin_counts():
        report["origins"] = counts
    if table.positive_ranks is not None:
        ranks = table.positive_ranks
        mrr = np.divide(1.0, ranks, out=np.zeros(len(ranks)), where=ranks > 0).mean()
        report["positives"] = {"ranked": int((ranks > 0).sum()), "mean_reciprocal_rank": round(float(mrr), 4)}
    if table.margins is not None and np.isfinite(table.margins).any():
        margins = table.margins[np.isfinite(table.margins)]
        p10, p50, p90 = np.percentile(margins, [10, 50, 90])
        named = {"mean": margins.mean(), "p10": p10, "p50": p50, "p90": p90}
        report["margin"] = {name: round(float(value), 4) for name, value in named.items()}
    if snapshot.judges:
        report["judged_by"] = dict(snapshot.judges)
    return table, report
