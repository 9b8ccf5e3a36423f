"""`pyserini-ance compare`: finished runs in one table, and their dev curves.

A curve is the dev measure over training time, including waits for refreshes.
"""

import argparse
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pyserini_ance.analysis.forgetting import forgetting
from pyserini_ance.analysis.grid_tables import improvements, runs_in
from pyserini_ance.analysis.run_comparison import (
    TESTS,
    compare,
    labels,
    significance,
    significance_cells,
    significance_column,
    significance_legend,
)
from pyserini_ance.commands import console
from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.storage.files import read_json_lines

DETAILS = """\
--significance adds a column for each measure: the mean difference from ROW over the test queries,
its p value, and the queries won, tied and lost."""
EXAMPLE = "pyserini-ance compare runs/demo-ance runs/demo-rand --significance demo/rand --curve curve.svg"
log = logging.getLogger(__name__)
# `refresh`: saving checkpoints, sync refreshes, and waiting for async ones.
TIMED_EVENTS = ("step", "refresh")


@dataclass(frozen=True)
class DevPoint:
    """The dev measure of the checkpoint before step `step` of `stage`, `seconds` of training after the run's
    first step."""

    stage: str
    step: int
    measure: str
    seconds: float
    value: float


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    runs = [run for folder in args.runs for run in runs_in(folder)]
    results = [read_results(run) for run in runs]
    more = [significance_legend(args.significance, args.test)] if args.significance else []
    print(table_with_legend(*_table(args, runs, results), *more))
    if args.curve:
        plot_curves(_curves(results, runs), args.curve)
        print(f"drawn: {args.curve}")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = console.command_parser(
        "compare",
        "Compare finished runs in one table; runs of a recipe with different seeds share a row.",
        EXAMPLE,
        DETAILS,
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="run directories with a measures.json, or the folder of a grid",
    )
    tables = parser.add_argument_group("tables (at most one)").add_mutually_exclusive_group()
    tables.add_argument(
        "--significance", metavar="ROW", help="also test the other rows against this row, query by query"
    )
    tables.add_argument(
        "--time-to-target",
        nargs="?",
        type=float,
        const=math.nan,
        metavar="DEV",
        help="instead, seconds of training to this dev measure (default: the highest that all runs reach)",
    )
    tables.add_argument(
        "--improvement-over",
        metavar="RECIPE",
        help="instead, the relative improvement of a grid's recipes over this one, by the other settings "
        "and each of final_evaluation.indexes",
    )
    tables.add_argument(
        "--forgetting",
        action="store_true",
        help="instead, the training queries whose positives rank worse after a refresh than before",
    )
    test = parser.add_argument_group("significance test")
    test.add_argument(
        "--test",
        choices=TESTS,
        default="t",
        help="paired test of --significance, p corrected for the number of rows (default: %(default)s)",
    )
    figure = parser.add_argument_group("figure")
    figure.add_argument(
        "--curve",
        type=Path,
        metavar="FILE.svg",
        help="also draw the dev measure over training time (SVG or PNG)",
    )
    args = parser.parse_args(arguments)
    if args.improvement_over and len(args.runs) > 1:
        parser.error("--improvement-over reads one grid: pass its folder alone")
    return args


def _table(
    args: argparse.Namespace, runs: list[Path], results: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of the table that the options select."""
    if args.improvement_over:
        return improvements(args.runs[0], args.improvement_over)
    if args.forgetting:
        return forgetting(list(zip(labels(results), runs, strict=True)))
    if args.time_to_target is not None:
        target = None if math.isnan(args.time_to_target) else args.time_to_target
        return time_to_target(_curves(results, runs), target)
    rows, columns = compare(results)
    baseline = args.significance
    if not baseline:
        return rows, columns
    differences = significance(runs, results, baseline, args.test)
    rows = [{**row, **significance_cells(differences.get(row["recipe"], {}), baseline)} for row in rows]
    return rows, [*columns, *(significance_column(measure, baseline) for measure in results[0]["measures"])]


def _curves(results: Sequence[dict[str, Any]], runs: list[Path]) -> dict[str, list[DevPoint]]:
    metrics = (run / "metrics.jsonl" for run in runs)
    return mean_curves(list(zip(labels(results), metrics, strict=True)))


def dev_curve(metrics: Path) -> list[DevPoint]:
    """The points of a run, from its `metrics.jsonl`. A checkpoint's time is when training reached its step.

    The time of dev evaluations is not counted: it is the same in all runs that are compared.
    """
    points = []
    reached: dict[tuple[str, int], float] = {}
    seconds = 0.0
    for record in read_json_lines(metrics):
        if record["event"] in TIMED_EVENTS:
            reached.setdefault((record["stage"], record["step"]), seconds)
            seconds += record["seconds"] - record.get("dev_seconds", 0.0)
        elif record["event"] == "documents":  # frozen documents are encoded and indexed once
            seconds += sum(record["parts"].values())
        elif record["event"] == "dev":
            key = (record["stage"], record["checkpoint_step"])
            points.append(DevPoint(*key, record["measure"], reached.get(key, seconds), record["value"]))
    return points


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
        fmean(p.seconds for p in points),
        fmean(p.value for p in points),
    )


def plot_curves(curves: Mapping[str, Sequence[DevPoint]], path: Path) -> None:
    """Plot the curves to a file, in the format of its ending."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise RuntimeError("plots need matplotlib: pip install matplotlib") from error
    measures = dict.fromkeys(point.measure for points in curves.values() for point in points)
    figure = matplotlib.figure.Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, points in curves.items():
        axes.plot([p.seconds / 60 for p in points], [p.value for p in points], marker="o", label=label)
    axes.set(
        xlabel="minutes of training (steps, checkpoints, refreshes, waiting; not evaluation)",
        ylabel="dev " + ", ".join(measures),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)
