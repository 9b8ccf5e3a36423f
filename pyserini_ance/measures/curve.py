"""The dev measure over the time that training took: what refreshing earns, and what standing still for it costs."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pyserini_ance.storage.files import read_json_lines

log = logging.getLogger(__name__)
SPENT = ("step", "refresh")  # steps, and standing still for checkpoints, for what is made of them inline, and for waiting


@dataclass(frozen=True)
class Point:
    """The dev measure of the checkpoint before step `step` of `stage`, `seconds` of training after the run's first step."""

    stage: str
    step: int
    measure: str
    seconds: float
    value: float


def dev_curve(metrics: Path) -> list[Point]:
    """The points of a run, from its `metrics.jsonl`. A checkpoint counts from when training had reached its step.

    Measuring itself is left out: it is the same in all that is compared.
    """
    points, reached, spent = [], {}, 0.0
    for record in read_json_lines(metrics):
        if record["event"] in SPENT:
            reached.setdefault((record["stage"], record["step"]), spent)
            spent += record["seconds"] - record.get("dev_seconds", 0.0)
        elif record["event"] == "documents":  # encoded and indexed once, where the query tower alone is to be trained
            spent += sum(record["parts"].values())
        elif record["event"] == "dev":
            key = (record["stage"], record["of"])
            points.append(Point(*key, record["measure"], reached.get(key, spent), record["value"]))
    return points


def mean_curves(runs: Sequence[tuple[str, Path]]) -> dict[str, list[Point]]:
    """For each label the curve of its runs' means, over the steps at which all were measured: with `patience` one ends before another.

    `runs`: (label, metrics.jsonl). Raises ValueError where a label has no such step.
    """
    together: Mapping[str, list[list[Point]]] = defaultdict(list)
    for label, metrics in runs:
        together[label].append(dev_curve(metrics))
    return {label: _mean_curve(label, curves) for label, curves in together.items()}


def race(curves: Mapping[str, Sequence[Point]], target: float | None = None) -> tuple[list[dict], list[str]]:
    """Rows and columns of a table: how long each label trained up to its best dev measure, and up to the first of `target` or more
    (default: what all of them reach).
    """
    best = {label: max(points, key=lambda point: point.value) for label, points in curves.items() if points}
    if missing := sorted(curves.keys() - best.keys()):
        raise ValueError(f"{', '.join(missing)}: no dev measure was taken; give the recipe `evaluate:`")
    target = min(point.value for point in best.values()) if target is None else target
    measures = {point.measure for point in best.values()}
    if len(measures) > 1:
        raise ValueError(f"dev was measured by {' and '.join(sorted(measures))}: compare like with like")
    measure = measures.pop()
    column = f"to {target:.4f} seconds"
    rows = []
    for label, points in curves.items():
        first = next((point for point in points if point.value >= target), None)
        there = {column: first and first.seconds, "after": first and f"{first.stage}, step {first.step}"}
        rows.append({"recipe": label, f"best dev {measure}": best[label].value, "its seconds": best[label].seconds, **there})
    return rows, ["recipe", f"best dev {measure}", "its seconds", column, "after"]


def _mean_curve(label: str, curves: Sequence[Sequence[Point]]) -> list[Point]:
    found = [{(point.stage, point.step, point.measure): point for point in points} for points in curves]
    shared = [place for place in found[0] if all(place in of_run for of_run in found)]
    if len(shared) < max(map(len, found)):
        counts = ", ".join(str(len(of_run)) for of_run in found)
        if not shared:
            raise ValueError(
                f"{label}: its {len(found)} runs were measured at different steps, or by different measures "
                f"({counts} dev measures, none of which all have); compare like with like"
            )
        log.warning("%s: its runs have %s dev measures; the mean is over the %d that all have", label, counts, len(shared))
    return [_mean([of_run[place] for of_run in found]) for place in shared]


def _mean(points: Sequence[Point]) -> Point:
    first = points[0]
    return Point(first.stage, first.step, first.measure, fmean(p.seconds for p in points), fmean(p.value for p in points))


def draw(curves: Mapping[str, Sequence[Point]], path: Path) -> None:
    """A plot of the curves; the format is that of the file's ending."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise RuntimeError("plots need matplotlib: pip install matplotlib") from error
    measures = dict.fromkeys(point.measure for points in curves.values() for point in points)
    figure = matplotlib.figure.Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, points in curves.items():
        axes.plot([p.seconds / 60 for p in points], [p.value for p in points], marker="o", label=label)
    axes.set(xlabel="minutes of training (steps, checkpoints, refreshes, waiting; not measuring)", ylabel="dev " + ", ".join(measures))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)
