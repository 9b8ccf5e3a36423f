"""Dev curves of finished runs: the dev measure over steps and over training time, waits included."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pyserini_ance.storage.files import read_json_lines

log = logging.getLogger(__name__)
# Told apart by the colour-blind (Okabe and Ito 2008, Color Universal Design); further curves are dashed.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":")
# `refresh`: saving checkpoints, sync refreshes, and waiting for async ones.
TIMED_EVENTS = ("step", "refresh")


@dataclass(frozen=True)
class DevPoint:
    """The dev measure of the checkpoint before step `step` of `stage`, which the run reached after `steps`
    steps of all its stages and `seconds` of training; means of both over several runs."""

    stage: str
    step: int
    measure: str
    steps: float
    seconds: float
    value: float


def dev_curve(metrics: Path) -> list[DevPoint]:
    """The points of a run, from its `metrics.jsonl`. A checkpoint's time is when training reached its step.

    The time of dev evaluations is not counted: it is the same in all runs that are compared.
    """
    return dev_points(read_json_lines(metrics))


def dev_points(records: Sequence[Mapping[str, Any]]) -> list[DevPoint]:
    """The points of a run, as `dev_curve`, from the records of its metrics."""
    points = []
    reached: dict[tuple[str, int], tuple[int, float]] = {}
    steps = 0
    for record, seconds in zip(records, training_seconds(records), strict=True):
        if record["event"] in TIMED_EVENTS:
            reached.setdefault((record["stage"], record["step"]), (steps, seconds))
            steps += record["event"] == "step"
        elif record["event"] == "dev":
            key = (record["stage"], record["checkpoint_step"])
            points.append(
                DevPoint(*key, record["measure"], *reached.get(key, (steps, seconds)), record["value"])
            )
    return points


def training_seconds(records: Iterable[Mapping[str, Any]]) -> list[float]:
    """Seconds of training before each record, without dev evaluations."""
    before, seconds = [], 0.0
    for record in records:
        before.append(seconds)
        if record["event"] in TIMED_EVENTS:
            seconds += record["seconds"] - record.get("dev_seconds", 0.0)
        elif record["event"] == "documents":  # frozen documents are encoded and indexed once
            seconds += sum(record["parts"].values())
        elif record["event"] == "teacher":
            seconds += sum(record["seconds"].values())
    return before


def mean_curves(runs: Sequence[tuple[str, Path]]) -> dict[str, list[DevPoint]]:
    """For each label, the mean curve of its runs, over the steps at which all of them were evaluated.

    With `patience`, runs end at different steps. `runs`: (label, metrics.jsonl). Raises ValueError if the
    runs of a label have no common step.
    """
    curves_by_label: dict[str, list[list[DevPoint]]] = defaultdict(list)
    for label, metrics in runs:
        curves_by_label[label].append(dev_curve(metrics))
    return {label: _mean_curve(label, curves) for label, curves in curves_by_label.items()}


def time_to_target(
    curves: Mapping[str, Sequence[DevPoint]], target: float | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of a table: seconds of training to each label's best dev measure, and to `target`.

    The default target is the highest value that all labels reach.
    """
    best = {label: max(points, key=lambda point: point.value) for label, points in curves.items() if points}
    if missing := sorted(curves.keys() - best.keys()):
        raise ValueError(f"{', '.join(missing)}: dev was not evaluated; set `evaluate:` in the recipe")
    target = min(point.value for point in best.values()) if target is None else target
    measures = {point.measure for point in best.values()}
    if len(measures) > 1:
        raise ValueError(
            f"dev was evaluated by {' and '.join(sorted(measures))}: compare runs with one measure"
        )
    measure = measures.pop()
    column = f"to {target:.4f} seconds"
    rows = []
    for label, points in curves.items():
        first = next((point for point in points if point.value >= target), None)
        rows.append(
            {
                "recipe": label,
                f"best dev {measure}": best[label].value,
                "its seconds": best[label].seconds,
                column: first and first.seconds,
                "after": first and f"{first.stage}, step {first.step}",
            }
        )
    return rows, ["recipe", f"best dev {measure}", "its seconds", column, "after"]


def _mean_curve(label: str, curves: Sequence[Sequence[DevPoint]]) -> list[DevPoint]:
    by_run = [{(point.stage, point.step, point.measure): point for point in points} for points in curves]
    shared = [key for key in by_run[0] if all(key in points for points in by_run)]
    if len(shared) < max(map(len, by_run)):
        counts = ", ".join(str(len(points)) for points in by_run)
        if not shared:
            raise ValueError(
                f"{label}: its {len(by_run)} runs were evaluated at different steps, or by "
                "different measures "
                f"({counts} dev scores, none of which all have); compare runs with the same `evaluate:`"
            )
        log.warning(
            "%s: its runs have %s dev scores; the mean is over the %d that all have",
            label,
            counts,
            len(shared),
        )
    return [_mean([points[key] for points in by_run]) for key in shared]


def _mean(points: Sequence[DevPoint]) -> DevPoint:
    first = points[0]
    return DevPoint(
        first.stage,
        first.step,
        first.measure,
        fmean(p.steps for p in points),
        fmean(p.seconds for p in points),
        fmean(p.value for p in points),
    )


def plot_curves(curves: Mapping[str, Sequence[DevPoint]], path: Path) -> None:
    """Plot the curves over steps and, next to it, over minutes to a file, in the format of its ending.

    Runs without dev measures have none.
    """
    try:
        import matplotlib.figure
    except ImportError as error:
        raise RuntimeError("plots need matplotlib: pip install matplotlib") from error
    measures = dict.fromkeys(point.measure for points in curves.values() for point in points)
    figure = matplotlib.figure.Figure(figsize=(10, 4.5), layout="constrained")
    by_steps, by_minutes = figure.subplots(1, 2, sharey=True)
    drawn = {label: points for label, points in curves.items() if points}
    for number, (label, points) in enumerate(drawn.items()):
        style = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": LINES[number // len(COLOURS) % len(LINES)],
            "marker": "o",
            "markersize": 3,
            "label": label,
        }
        values = [point.value for point in points]
        by_steps.plot([point.steps for point in points], values, **style)
        by_minutes.plot([point.seconds / 60 for point in points], values, **style)
    by_steps.set(xlabel="steps of all stages", ylabel="dev " + ", ".join(measures))
    by_minutes.set(xlabel="minutes: steps, checkpoints, refreshes, waiting; not evaluation")
    for axes in (by_steps, by_minutes):
        axes.grid(alpha=0.3)
    figure.legend(*by_steps.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path)
