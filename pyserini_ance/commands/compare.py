"""`pyserini-ance compare`: finished runs in one table, and their dev curves."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_ance.commands import console

if TYPE_CHECKING:
    from pyserini_ance.reports.dev_curves import DevPoint

DETAILS = """\
ROW is the name of a row of the table, or a run directory (or the folder of a grid) that has one row.
--significance adds a column for each measure: the mean difference from ROW over the test queries,
its p value, and the queries won, tied and lost."""
EXAMPLE = "pyserini-ance compare runs/demo-ance runs/demo-rand --significance demo/rand --curve curve.svg"


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.reports.compared_runs import read_distinct, row_named, variant_legend
    from pyserini_ance.reports.dev_curves import plot_curves
    from pyserini_ance.reports.grid_tables import runs_in
    from pyserini_ance.reports.run_comparison import significance_legend

    runs, results = read_distinct(runs_in(args.runs))
    baseline = row_named(args.significance, results) if args.significance else None
    only = [row_named(name, results) for name in args.rows]
    rows, columns = _table(args, runs, results, baseline, only)
    more = variant_legend(results, (row["recipe"] for row in rows))
    if baseline:
        more.append(significance_legend(baseline, args.test))
    print(table_with_legend(rows, columns, *more))
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
    parser.add_argument(
        "--rows",
        nargs="+",
        action="extend",
        default=[],
        metavar="ROW",
        help="show these rows alone, and that of --significance; p values are corrected for their number",
    )
    test = parser.add_argument_group("significance test")
    test.add_argument(
        "--test",
        choices=console.TESTS,
        default="t",
        help="paired test of --significance, p corrected for the number of rows (default: %(default)s)",
    )
    figure = parser.add_argument_group("figure")
    figure.add_argument(
        "--curve",
        type=Path,
        metavar="FILE.svg",
        help="also draw the dev measure over steps and over minutes of training (SVG or PNG)",
    )
    args = parser.parse_args(arguments)
    if args.time_to_target is not None or args.improvement_over or args.forgetting:
        console.refuse_options(parser, args, "--rows chooses rows of the table of measures", "--rows")
    if not args.significance:
        console.refuse_options(parser, args, "--test is that of --significance", "--test")
    if args.improvement_over and len(args.runs) > 1:
        parser.error("--improvement-over reads one grid: pass its folder alone")
    return args


def _table(
    args: argparse.Namespace,
    runs: list[Path],
    results: Sequence[dict[str, Any]],
    baseline: str | None,
    only: Sequence[str],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of the table that the options select; `baseline` and `only` are labels of its rows."""
    from pyserini_ance.reports.dev_curves import time_to_target
    from pyserini_ance.reports.forgetting import forgetting
    from pyserini_ance.reports.grid_tables import improvements
    from pyserini_ance.reports.run_comparison import (
        compare,
        labels,
        significance,
        significance_cells,
        significance_column,
    )

    if args.improvement_over:
        return improvements(args.runs[0], args.improvement_over)
    if args.forgetting:
        return forgetting(list(zip(labels(results), runs, strict=True)))
    if args.time_to_target is not None:
        target = None if math.isnan(args.time_to_target) else args.time_to_target
        return time_to_target(_curves(results, runs), target)
    rows, columns = compare(results, only and [*only, *([baseline] if baseline else [])])
    if not baseline:
        return rows, columns
    differences = significance(runs, results, baseline, args.test, only)
    rows = [{**row, **significance_cells(differences.get(row["recipe"], {}), baseline)} for row in rows]
    return rows, [*columns, *(significance_column(measure, baseline) for measure in results[0]["measures"])]


def _curves(results: Sequence[dict[str, Any]], runs: list[Path]) -> "dict[str, list[DevPoint]]":
    from pyserini_ance.reports.dev_curves import mean_curves
    from pyserini_ance.reports.run_comparison import labels

    metrics = (run / "metrics.jsonl" for run in runs)
    return mean_curves(list(zip(labels(results), metrics, strict=True)))
