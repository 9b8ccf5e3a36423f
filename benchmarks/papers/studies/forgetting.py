"""Forgetting: training queries whose positives rank worse after a refresh, and the course of single queries.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 3.2, Figures 3, 4 and 8, Table 9.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Line, Panel, bars, lines
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.reports.forgetting import intervals_of, reciprocal_ranks
from pyserini_ance.runs.rundir import TRAINING_RANKS_CUTOFF as CUTOFF

FOLLOWED = 10  # queries in the picture of single queries, as in the paper


def study(runs: Sequence[StudiedRun]) -> Findings:
    """The numbers of `compare --forgetting`, of each run alone, and RR@100 of ten training queries at each
    refresh. The queries are sampled with `seed`."""
    rows: list[Row] = []
    panels: list[Panel] = []
    shares: dict[str, dict[str, float]] = {}
    for run in runs:
        ranks = _ranks(run)
        for interval in intervals_of(ranks):
            rows.append({"run": run.name, **interval._asdict()})
            label = f"{interval.until}, {run.name}" if len(runs) > 1 else interval.until
            shares[label] = {"forgotten": 100 * interval.forgotten, "learnt": 100 * interval.learnt}
        title = f"Single training queries{f': {run.name}' if len(runs) > 1 else ''}"
        panels.append(Panel(title, "step of all stages", f"RR@{CUTOFF}", lines(_followed(run, ranks))))
    all_queries = Panel(
        "Queries that rank worse, and better, than before", "until", "training queries (%)", bars(shares)
    )
    return Findings(rows, [all_queries, *panels])


def _ranks(run: StudiedRun) -> dict[str, np.ndarray]:
    try:
        ranks = reciprocal_ranks(run.run.folder)
    except (ValueError, FileNotFoundError) as error:
        raise NotKept(str(error)) from None
    if len(ranks) < 2:
        raise NotKept(f"{run.run.folder} has mined with its own model fewer than two times")
    return ranks


def _followed(run: StudiedRun, ranks: Mapping[str, np.ndarray]) -> dict[str, Line]:
    """The course of ten queries over the checkpoints, from RR (Q,) at each."""
    total = len(next(iter(ranks.values())))
    chosen = run.sample("study forgetting", total, FOLLOWED)
    named = [name.rpartition("-") for name in ranks]
    steps = [run.history.stages[stage][0] + int(step) for stage, _, step in named]
    return {f"query {row}": Line(steps, [float(of[row]) for of in ranks.values()]) for row in chosen.tolist()}
