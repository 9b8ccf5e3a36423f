"""Hours of training by stage: the rows of ANCE-Tele's Table 6.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, appendix C.3, Table 6.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmarks.papers.studies.figures import Panel, bars, heights
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun

SECONDS_PER_HOUR = 3600
# MS MARCO on one A100 (40 GB); NQ and TriviaQA on four V100 (32 GB). Of the refresh: each of three.
PUBLISHED = {
    "epi-1": (2.5, 1.2),
    "epi-2": (2.5, 1.2),
    "epi-3": (23.5, 10.8),
    "refresh": (1.2, 2.7),
    "overall": (32.1, 21.3),
}


def study(runs: Sequence[StudiedRun]) -> Findings:
    """Hours of each stage's optimizer steps, of a refresh (mean; `times`: their number), and of all training:
    steps, refreshes, waiting for asynchronous ones, and checkpoints."""
    rows = [row for run in runs for row in _rows(run)]
    drawn = bars(heights(rows, "run", "part", "hours"))
    return Findings(rows, [Panel("Each stage, one refresh, and all", "run", "hours", drawn)])


def _rows(run: StudiedRun) -> Iterator[Row]:
    refreshes = [sum(record["seconds"].values()) for record in run.history.of_event("generation")]
    parts = [(stage, 1, _seconds(run, "step", stage)) for stage in run.history.stages]
    parts += [("refresh", len(refreshes), fmean(refreshes))] if refreshes else []
    for part, times, seconds in [*parts, ("overall", 1, training_seconds(run))]:
        marco, openqa = PUBLISHED.get(part, (None, None))
        row = {"run": run.name, "part": part, "times": times, "hours": seconds / SECONDS_PER_HOUR}
        yield row | {"MS MARCO hours": marco, "NQ, TriviaQA hours": openqa}


def training_seconds(run: StudiedRun) -> float:
    """Seconds of all steps and of all that happens between them."""
    return sum(_seconds(run, event, stage) for event in ("step", "refresh") for stage in run.history.stages)


def _seconds(run: StudiedRun, event: str, stage: str) -> float:
    return sum(record["seconds"] for record in run.history.of_event(event) if record["stage"] == stage)
