"""Rows of a grid's tables: one for each run, and means and deviations over seeds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from pyserini_ance.evaluation.tables import last_stage, read_results, seconds_of
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir

DEV, SECONDS, SEED = "dev best", "seconds", "seed"
GRID_FILE = "grid.json"  # in the folder of a grid


@dataclass(frozen=True)
class GridRow:
    """One run of a grid: its folder, the value of each setting as text, its status, and its results once it
    has finished.

    `running` means by another process; `reason` says why a run has failed.
    """

    run: Path
    settings: dict[str, str]
    status: Literal["waiting", "running", "finished", "failed"]
    measures: dict[str, float] = field(default_factory=dict)
    dev: float | None = None
    seconds: float | None = None
    reason: str | None = None

    def cells(self) -> dict[str, Any]:
        results = {**self.measures, DEV: self.dev, SECONDS: self.seconds}
        return {**self.settings, "status": self.status, **results}


def read_row(run: Path, settings: dict[str, str]) -> GridRow:
    """The row of a finished run: its last stage's final measures and best dev measure, and the seconds of all
    stages."""
    results = read_results(run)
    last = last_stage(results["rows"])
    best = [one["value"] for one in RunLog(RunDir(run), writes=False).decisions("best", last["row"])]
    measures = {name: last[name] for name in results["measures"]}
    return GridRow(
        run, settings, "finished", measures, best[-1] if best else None, seconds_of(results["rows"])
    )


def columns_of(rows: Sequence[GridRow]) -> list[str]:
    """Settings, measures, dev and seconds; and the status, unless all runs have finished."""
    settings = dict.fromkeys(name for row in rows for name in row.settings)
    measures = dict.fromkeys(name for row in rows for name in row.measures)
    status = [] if all(row.status == "finished" for row in rows) else ["status"]
    return [*settings, *status, *measures, DEV, SECONDS]


def over_seeds(rows: Sequence[GridRow], seed: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns: count, means and sample standard deviations of the finished runs that differ by
    `seed` alone."""
    groups: dict[tuple[tuple[str, str], ...], list[GridRow]] = defaultdict(list)
    for row in rows:
        if row.status == "finished":
            groups[tuple((key, value) for key, value in row.settings.items() if key != seed)].append(row)
    means = [_means(dict(settings), group) for settings, group in groups.items()]
    return means, list(dict.fromkeys(column for row in means for column in row))


def _means(settings: Mapping[str, str], group: Sequence[GridRow]) -> dict[str, Any]:
    figures: dict[str, float | None] = {}
    for name in [*group[0].measures, DEV]:
        values = [value for row in group if (value := row.cells().get(name)) is not None]
        figures[f"{name} mean"] = fmean(values) if values else None
        figures[f"{name} sd"] = stdev(values) if len(values) > 1 else None
    seconds = fmean(row.seconds for row in group if row.seconds is not None)
    return {**settings, "seeds": len(group), **figures, SECONDS: seconds}
