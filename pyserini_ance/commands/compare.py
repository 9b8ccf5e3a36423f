"""`pyserini-ance compare`: finished runs in one table, and their dev curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from pyserini_ance.commands import parsing

if TYPE_CHECKING:
    from pyserini_ance.reports.dev_curves import DevPoint

DETAILS = """\
ROW is the name of a row of the table, or a run directory (or the folder of a grid) that has one row.
--significance adds a column for each measure: the mean difference from ROW over the test queries,
its p value, and the queries won, tied and lost."""
EXAMPLE = "pyserini-ance compare runs/demo-ance runs/demo-rand --significance demo/rand --curve curve.svg"


@parsing.command(EXAMPLE, DETAILS)
def main(
    runs: Annotated[
        list[Path], Argument(metavar="RUN", help="run directories with a measures.json, or a grid's folder")
    ],
    significance: Annotated[
        str | None, Option(metavar="ROW", help="also test the other rows against this row, query by query")
    ] = None,
    test: parsing.Test = None,
    rows: Annotated[
        list[str] | None,
        Option(
            metavar="ROW ...",
            help="show these rows alone, and that of --significance; p values are corrected for their number",
        ),
    ] = None,
    time_to_target: Annotated[
        str | None,
        Option(
            metavar="DEV",
            help="instead, seconds of training to this dev measure; `best`: the highest that all runs reach",
        ),
    ] = None,
    improvement_over: Annotated[
        str | None,
        Option(
            metavar="RECIPE",
            help="instead, the relative improvement of a grid's recipes over this one, by the other settings "
            "and each of final_evaluation.indexes",
        ),
    ] = None,
    forgetting: Annotated[
        bool,
        Option(
            "--forgetting",
            help="instead, the training queries whose positives rank worse after a refresh than before",
        ),
    ] = False,
    curve: Annotated[
        Path | None,
        Option(
            metavar="FILE.svg",
            help="also draw the dev measure over steps and over minutes of training (SVG or PNG)",
        ),
    ] = None,
) -> None:
    """Compare finished runs in one table; runs of a recipe with different seeds share a row."""
    if (significance is not None) + (time_to_target is not None) + bool(improvement_over) + forgetting > 1:
        parsing.refuse("pass one of --significance, --time-to-target, --improvement-over and --forgetting")
    if time_to_target is not None or improvement_over or forgetting:
        parsing.refuse_options("--rows chooses rows of the table of measures", rows=rows)
    if not significance:
        parsing.refuse_options("--test is that of --significance", test=test)
    if improvement_over and len(runs) > 1:
        parsing.refuse("--improvement-over reads one grid: pass its folder alone")
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.reports import dev_curves, run_comparison
    from pyserini_ance.reports.compared_runs import read_distinct, row_named, variant_legend
    from pyserini_ance.reports.forgetting import forgetting as forgotten
    from pyserini_ance.reports.grid_tables import improvements, runs_in

    folders, results = read_distinct(runs_in(runs))
    baseline = row_named(significance, results) if significance else None
    only = [row_named(name, results) for name in rows or ()]
    if improvement_over:
        cells, columns = improvements(runs[0], improvement_over)
    elif forgetting:
        cells, columns = forgotten(list(zip(run_comparison.labels(results), folders, strict=True)))
    elif time_to_target is not None:
        target = None if time_to_target == "best" else float(time_to_target)
        cells, columns = dev_curves.time_to_target(_curves(results, folders), target)
    else:
        shown = only and [*only, *([baseline] if baseline else [])]
        cells, columns = run_comparison.compare(results, shown)
    more = variant_legend(results, (row["recipe"] for row in cells))
    if baseline:
        kind = test or "t"
        differences = run_comparison.significance(folders, results, baseline, kind, only)
        cells = [
            {**row, **run_comparison.significance_cells(differences.get(row["recipe"], {}), baseline)}
            for row in cells
        ]
        measures = results[0]["measures"]
        columns = [*columns, *(run_comparison.significance_column(each, baseline) for each in measures)]
        more.append(run_comparison.significance_legend(baseline, kind))
    print(table_with_legend(cells, columns, *more))
    if curve:
        dev_curves.plot_curves(_curves(results, folders), curve)
        print(f"drawn: {curve}")


def _curves(results: Sequence[dict[str, Any]], runs: list[Path]) -> "dict[str, list[DevPoint]]":
    from pyserini_ance.reports.dev_curves import mean_curves
    from pyserini_ance.reports.run_comparison import labels

    metrics = (run / "metrics.jsonl" for run in runs)
    return mean_curves(list(zip(labels(results), metrics, strict=True)))
