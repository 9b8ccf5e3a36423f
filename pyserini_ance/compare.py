"""`python -m pyserini_ance.compare RUN [RUN ...]`: one table of finished runs, the seeds of a recipe in one row.

With --against, a column more for each measure: the mean difference to that row over the test queries, its p value, and the
queries won, tied and lost.
"""

import argparse
import math
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.measures.against import against, cells, column
from pyserini_ance.measures.compare import compare, labels, read_results
from pyserini_ance.measures.curve import Point, draw, mean_curves, race
from pyserini_ance.measures.forgetting import forgetting
from pyserini_ance.measures.gains import gains
from pyserini_ance.measures.grid import runs_in
from pyserini_ance.measures.paired import TESTS
from pyserini_ance.measures.table import table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.compare", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories that hold measures.json, or the folder of a grid's")
    parser.add_argument("--curve", type=Path, metavar="FILE.svg", help="also draw the dev measure over the time of training")
    shown = parser.add_mutually_exclusive_group()
    race_help = "instead, a table of the seconds of training to this dev measure, or to what all reach"
    shown.add_argument("--race", nargs="?", type=float, const=math.nan, metavar="DEV", help=race_help)
    shown.add_argument("--against", metavar="ROW", help="a row of the table: test the others against it, by query")
    forgetting_help = "instead, a table of the training queries that got worse from one refresh to the next"
    shown.add_argument("--forgetting", action="store_true", help=forgetting_help)
    gains_help = "instead, of a grid over recipes what each gains over this one, for each of the other settings and by each of test.indexes"
    shown.add_argument("--gains", metavar="RECIPE", help=gains_help)
    parser.add_argument("--test", choices=TESTS, default="t", help="of --against: paired, p corrected for the number of rows (default: %(default)s)")
    args = parser.parse_args(arguments)
    if args.gains and len(args.runs) > 1:
        parser.error("--gains reads one grid: name its folder alone")
    runs = [run for given in args.runs for run in runs_in(given)]
    results = [read_results(run) for run in runs]
    print(table(*_table(args, runs, results)))
    if args.curve:
        draw(_curves(results, runs), args.curve)
        print(f"drawn: {args.curve}")


def _table(args: argparse.Namespace, runs: list[Path], results: list[dict]) -> tuple[list[dict], list[str]]:
    """Rows and columns of what is asked for."""
    if args.gains:
        return gains(args.runs[0], args.gains)
    if args.forgetting:
        return forgetting(list(zip(labels(results), runs, strict=True)))
    if args.race is not None:
        return race(_curves(results, runs), None if math.isnan(args.race) else args.race)
    rows, columns = compare(results)
    if not args.against:
        return rows, columns
    found = against(runs, results, args.against, args.test)
    rows = [{**row, **cells(found.get(row["recipe"], {}), args.against)} for row in rows]
    return rows, [*columns, *(column(measure, args.against) for measure in results[0]["measures"])]


def _curves(results: list[dict], runs: list[Path]) -> dict[str, list[Point]]:
    return mean_curves(list(zip(labels(results), (run / "metrics.jsonl" for run in runs), strict=True)))


if __name__ == "__main__":
    cli.run(main)
