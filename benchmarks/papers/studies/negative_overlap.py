"""Share of the training negatives that are the model's own top negatives, by source of negatives.

Source: Xiong et al. 2021 (ANCE), arXiv:2007.00808, section 6.2; version 1, Figure 4.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines, lines_of
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun, shared_share
from pyserini_ance.data.trec import PADDING

TITLE = "Training negatives among the model's own top negatives"


def study(runs: Sequence[StudiedRun]) -> Findings:
    """For sampled training queries, the overlap of each source's first k negatives with the first k of the
    run's result, `k` being `top_k`; both without known positives.

    Differs from the paper, which compares with the model in training on dev queries: a run keeps one model,
    its result, and negatives are mined for training queries.
    """
    rows = [row for run in runs for row in _rows(run)]
    k = runs[0].settings.top_k
    last = {run.name: max(run.history.steps, 1) for run in runs}
    shown = []
    for row in rows:
        name = f"{row['run']}: {row['source']}" if len(runs) > 1 else row["source"]
        # A source without a step is a level line over the whole training.
        steps = [0, last[row["run"]]] if row["step"] is None else [row["step"]]
        shown += [{"name": name, "step": step, "share": 100 * row["overlap"]} for step in steps]
    panel = Panel(
        f"First {k} negatives of each source",
        "step of all stages",
        "share among the model's top (%)",
        lines(lines_of(shown, "name", "step", "share")),
    )
    return Findings(rows, [panel])


def _rows(run: StudiedRun) -> Iterator[Row]:
    whole = run.data.anchor_sets["query"]
    positives, anchors = whole.known_positives, run.sampled_anchors("study negative-overlap")
    top = run.top_negatives(run.result, anchors)

    def row(source: str, step: int | None, shares: np.ndarray) -> Row:
        return {
            "run": run.name,
            "source": source,
            "step": step,
            "overlap": float(np.nanmean(shares)),
            "queries": len(shares),
        }

    sizes = (top != PADDING).sum(1)
    yield row("random", None, sizes / (whole.candidates - positives.counts[anchors]))
    yield row("in-batch", None, in_batch_shares(positives.rows[positives.offsets[anchors]], top))
    if (of_bm25 := run.bm25_negatives(anchors)) is not None:
        yield row("bm25", None, shared_share(of_bm25, top))
    for stage, generation in run.generations:
        for (term, _), table in generation.tables.items():
            if table.anchor_side != "query" or table.source in ("bm25", "random"):
                continue
            mined = np.isin(anchors, table.anchors)
            if not mined.any():  # each refresh mines for another part of the queries
                continue
            candidates = table.candidates[table.positions(anchors[mined])][:, : top.shape[1]]
            position = run.history.stages[stage][0] + generation.step
            yield row(f"{term}: {table.source}", position, shared_share(candidates, top[mined]))


def in_batch_shares(positives: np.ndarray, top: np.ndarray) -> np.ndarray:
    """(A,) the share of the other anchors' `positives` (A,) that are in an anchor's `top` (A, k)."""
    others = np.tile(positives, (len(positives), 1))
    np.fill_diagonal(others, PADDING)
    others[others == positives[:, None]] = PADDING  # an anchor's own positive is no negative
    return shared_share(others, top)
