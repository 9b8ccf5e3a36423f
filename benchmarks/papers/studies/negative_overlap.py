"""Share of each source's negatives that are the top negatives of the model in training.

Source: Xiong et al. 2021 (ANCE), arXiv:2007.00808, section 6.2; version 1, Figure 4.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines, lines_of
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun, shared_share
from pyserini_ance.negatives.table import PADDING

NOT_KEPT = "no ANN: the checkpoints that mined are not kept; train with save_total_limit=100"


def study(runs: Sequence[StudiedRun]) -> Findings:
    """For sampled test queries, at each kept checkpoint, the overlap of each source's first k negatives with
    the checkpoint's own first k, `k` being `top_k`; both without known positives.

    Sources: random documents; the positives of the other sampled queries; BM25; and ANN, the checkpoint that
    mined the tables of the step before.
    """
    rows = [row for run in runs for row in _rows(run)]
    shown = [{**row, "name": f"{row['run']}: " * (len(runs) > 1) + row["source"]} for row in rows]
    panel = Panel(
        f"First {runs[0].settings.top_k} negatives of each source",
        "step of all stages",
        "share among the model's top",
        lines(lines_of(shown, "name", "step", "overlap")),
    )
    is_lacking = any(run.history.adoptions for run in runs) and "ANN" not in {row["source"] for row in rows}
    return Findings(rows, [panel], notes=[NOT_KEPT] * is_lacking)


def _rows(run: StudiedRun) -> Iterator[Row]:
    queries = run.test_queries
    positives, anchors = queries.known_positives, run.sampled_anchors("study negative-overlap", queries)
    of_bm25 = run.bm25_negatives(queries, anchors)
    chance = 1 / (len(run.data.collection.documents) - positives.counts[anchors])
    tops: dict[str, np.ndarray] = {}
    for kept in run.checkpoints:
        top = tops[kept.weights] = run.top_negatives(run.snapshot(kept.name), queries, anchors)
        shares = {
            "random": (top != PADDING).sum(1) * chance,
            "in-batch": in_batch_shares(positives.rows[positives.offsets[anchors]], top),
        }
        if of_bm25 is not None:
            shares["BM25"] = shared_share(of_bm25, top)
        if (mined := _mined_by(run, kept.position)) in tops:
            shares["ANN"] = shared_share(tops[mined], top)
        for source, of_queries in shares.items():
            about = {"run": run.name, "source": source, "step": kept.position}
            yield {**about, "overlap": float(np.nanmean(of_queries)), "queries": len(anchors)}


def _mined_by(run: StudiedRun, position: int) -> str:
    """The weights that mined the tables which the step before `position` trained on; "" without such
    tables."""
    weights = {(stage, generation.step): generation.weights for stage, generation in run.generations}
    history = run.history
    adopted = [record for record in history.adoptions if history.position(record) < position]
    return weights.get((adopted[-1]["stage"], adopted[-1]["checkpoint_step"]), "") if adopted else ""


def in_batch_shares(positives: np.ndarray, top: np.ndarray) -> np.ndarray:
    """(A,) the share of the other anchors' `positives` (A,) that are in an anchor's `top` (A, k)."""
    others = np.tile(positives, (len(positives), 1))
    np.fill_diagonal(others, PADDING)
    others[others == positives[:, None]] = PADDING  # an anchor's own positive is no negative
    return shared_share(others, top)
