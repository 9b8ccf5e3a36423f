"""Learning curves: loss, dev measure, and what each step's search retrieved.

Sources: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Figure 3(a)-(c); Li et al. 2021 (DANCE), Figure 2; Sun et
al. 2022 (ANCE-Tele), arXiv:2210.17167, Figure 2.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.papers.studies.figures import Line, Panel, lines, smooth
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.reports.run_history import WEIGHTED_SUM, Series

STEP = "step of all stages"


def study(runs: Sequence[StudiedRun]) -> Findings:
    """By step of all stages: the loss, the dev measure, and for live negatives the measures of each step's
    search (RR@10, R@k, overlap with BM25), from `metrics.jsonl`.

    Differs from LTRe's Figure 3: a run searches in each step only with live negatives; `training-retrieval`
    searches with the kept checkpoints of any run.
    """
    series: dict[str, dict[str, Series]] = {}
    for run in runs:
        dev = {f"dev {name}": line for name, line in run.history.lines["dev"].items()}
        losses = run.history.lines["loss"]
        total = losses.get(WEIGHTED_SUM) or next(iter(losses.values()), None)  # or the only term's
        loss = {"loss": total} if total else {}
        series[run.name] = {**loss, **dev, **run.history.lines["live searches"]}
    rows: list[Row] = [
        {"run": run, "series": name, "step": x, "value": y}
        for run, of_run in series.items()
        for name, line in of_run.items()
        for x, y in zip(line.x, line.y, strict=True)
        if not np.isnan(y)
    ]
    panels = []
    for name in dict.fromkeys(name for of_run in series.values() for name in of_run):
        own = {run: of_run[name] for run, of_run in series.items() if name in of_run}
        is_dev = name.startswith("dev ")
        drawn = {run: Line(line.x, line.y) if is_dev else smooth(line) for run, line in own.items()}
        title = name if is_dev else f"{name} (running mean)"
        panels.append(Panel(title, STEP, name, lines(drawn, points=is_dev)))
    return Findings(
        rows, panels, [_summary(run, name, line) for run, of in series.items() for name, line in of.items()]
    )


def _summary(run: str, name: str, line: Series) -> Row:
    values = np.array(line.y, float)
    best = int(np.nanargmin(values) if name == "loss" else np.nanargmax(values))
    return {
        "run": run,
        "series": name,
        "first": float(values[0]),
        "best": float(values[best]),
        "at step": int(line.x[best]),
        "last": float(values[~np.isnan(values)][-1]),
    }
