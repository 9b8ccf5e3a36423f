"""`pyserini-ance compare`: finished runs in one table, and their dev curves."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from pyserini_ance.commands import parsing

DETAILS = """\
ROW is the name of a row of the table. --significance adds a column for each measure: the mean difference
from ROW over the test queries, its p value, and the queries won, tied and lost. With --rows, p values are
corrected for the number of these rows.

--time-to-target counts seconds of training to a dev measure; `best` is the highest that all runs reach.
--improvement-over shows the gains of a grid's recipes over RECIPE, by the grid's other settings and each of
final_evaluation.indexes."""
EXAMPLE = "pyserini-ance compare runs/demo-ance runs/demo-rand --significance demo/rand --curve curve.svg"


@parsing.command(EXAMPLE, DETAILS)
def main(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="finished run directories, or a grid's folder")],
    significance: Annotated[str | None, parsing.option("ROW", "test the other rows against this one")] = None,
    test: parsing.Test = None,
    rows: Annotated[list[str] | None, parsing.option("ROW ...", "show and test these rows alone")] = None,
    time_to_target: Annotated[
        str | None,
        parsing.option("DEV", "instead, seconds of training to this dev measure, or to the `best`"),
    ] = None,
    improvement_over: Annotated[
        str | None,
        parsing.option("RECIPE", "instead, the gains of a grid's recipes over this one, in percent"),
    ] = None,
    forgetting: Annotated[
        bool, parsing.flag("forgetting", "instead, the training queries that a refresh made worse")
    ] = False,
    curve: Annotated[Path | None, parsing.option("FILE.svg", "also draw dev curves, as SVG or PNG")] = None,
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
    from pyserini_ance.reports import compare, plots, row_tests
    from pyserini_ance.reports.forgetting import forgetting as forgotten

    results = compare.read_distinct(compare.runs_in(runs))
    labelled = [(label, Path(of["run"])) for label, of in zip(compare.labels(results), results, strict=True)]
    notes: list[str] = []
    if improvement_over:
        cells, columns = compare.improvements(runs[0], improvement_over)
    elif forgetting:
        cells, columns = forgotten(labelled)
    elif time_to_target is not None:
        target = None if time_to_target == "best" else float(time_to_target)
        cells, columns = compare.time_to_target(compare.mean_curves(labelled), target)
    else:
        only = list(rows or ())
        cells, columns = compare.compare(results, only and [*only, *([significance] if significance else [])])
        if significance:
            (tested, [_, *added]), note = row_tests.significance(results, significance, test or "t", only)
            shown = {row["recipe"]: row for row in tested}
            cells = [row | shown.get(row["recipe"], {}) for row in cells]
            columns += added
            notes.append(note)
    variants = compare.variant_legend(results, (row["recipe"] for row in cells))
    print(table_with_legend(cells, columns, *variants, *notes))
    if curve:
        plots.plot_curves(compare.mean_curves(labelled), curve)
        print(f"drawn: {curve}")
