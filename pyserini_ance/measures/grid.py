"""What the runs of a grid came to: a row for each, and over seeds, for each of the other settings, mean and deviation."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from pyserini_ance.measures.compare import last_stage, read_results, seconds_of
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json

log = logging.getLogger(__name__)

DEV, SECONDS, SEED = "dev best", "seconds", "seed"
RECORD = "grid.json"  # in a grid's folder


@dataclass(frozen=True)
class GridRow:
    """One run: its folder, the setting of each key as text, whether it is `waiting`, `running` in another process, has
    `finished` or `failed` and why, and its figures.
    """

    run: Path
    settings: dict[str, str]
    status: Literal["waiting", "running", "finished", "failed"]
    measures: dict[str, float] = field(default_factory=dict)
    dev: float | None = None
    seconds: float | None = None
    reason: str | None = None

    def cells(self) -> dict:
        return {**self.settings, "status": self.status, **self.measures, DEV: self.dev, SECONDS: self.seconds}


def read_row(run: Path, settings: dict[str, str]) -> GridRow:
    """The row of a finished run: the test measures and the best dev measure of its last stage, and the seconds of all stages."""
    results = read_results(run)
    last = last_stage(results["rows"])
    best = [record["value"] for record in RunLog(RunDir(run), writes=False).decisions("best") if record["stage"] == last["row"]]
    measures = {name: last[name] for name in results["measures"]}
    return GridRow(run, settings, "finished", measures, best[-1] if best else None, seconds_of(results["rows"]))


def runs_in(folder: Path) -> list[Path]:
    """A run itself; of a grid's folder those that have finished. Raises ValueError when none of a grid's has."""
    if not (record := folder / RECORD).exists():
        return [folder]
    runs = read_json(record)["runs"]
    finished = [folder / run["run"] for run in runs if run["status"] == "finished"]
    if not finished:
        raise ValueError(f"{folder}: no run of this grid has finished yet")
    if len(finished) < len(runs):
        log.warning("%s: %d of %d runs have finished; the others are left out", folder, len(finished), len(runs))
    return finished


def columns_of(rows: Sequence[GridRow]) -> list[str]:
    """Settings, measures, dev, seconds; and how the runs ended, unless all have finished."""
    settings, measures = ({name: None for row in rows for name in part(row)} for part in (lambda r: r.settings, lambda r: r.measures))
    status = [] if all(row.status == "finished" for row in rows) else ["status"]
    return [*settings, *status, *measures, DEV, SECONDS]


def over_seeds(rows: Sequence[GridRow], seed: str) -> tuple[list[dict], list[str]]:
    """Rows and columns: for the finished runs that differ by `seed` alone, how many, means, and sample standard deviations."""
    groups: dict[tuple, list[GridRow]] = defaultdict(list)
    for row in rows:
        if row.status == "finished":
            groups[tuple((key, value) for key, value in row.settings.items() if key != seed)].append(row)
    means = [_means(dict(settings), group) for settings, group in groups.items()]
    return means, list(dict.fromkeys(column for row in means for column in row))


def _means(settings: Mapping[str, str], group: Sequence[GridRow]) -> dict:
    figures: dict = {}
    for name in [*group[0].measures, DEV]:
        values = [row.cells().get(name) for row in group]
        known = [value for value in values if value is not None]
        figures[f"{name} mean"] = fmean(known) if known else None
        figures[f"{name} sd"] = stdev(known) if len(known) > 1 else None
    return {**settings, "seeds": len(group), **figures, SECONDS: fmean(row.seconds for row in group)}
