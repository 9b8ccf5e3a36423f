"""`pyserini-ance compare`: finished runs in one table."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from pyserini_ance.commands import parsing

DETAILS = """\
ROW is the name of a row of the table. --significance adds a column for each measure: the mean difference
from ROW over the test queries, its p value, and the queries won, tied and lost. With --rows, p values are
corrected for the number of these rows. With --within D, a small p says that the two are equivalent: that
the difference is within D (two one-sided t tests), not merely that none was found.

--improvement-over shows the gains of a grid's recipes over RECIPE, by the grid's other settings and each of
final_evaluation.indexes."""
EXAMPLE = "pyserini-ance compare runs/demo-ance runs/demo-rand --significance demo/rand"


@parsing.command(EXAMPLE, DETAILS)
def main(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="finished run directories, or a grid's folder")],
    significance: Annotated[str | None, parsing.option("ROW", "test the other rows against this one")] = None,
    rows: Annotated[list[str] | None, parsing.option("ROW ...", "show and test these rows alone")] = None,
    within: Annotated[
        float | None, parsing.option("D", "test that rows are within D of ROW, not that they differ")
    ] = None,
    improvement_over: Annotated[
        str | None,
        parsing.option("RECIPE", "instead, the gains of a grid's recipes over this one, in percent"),
    ] = None,
    forgetting: Annotated[
        bool, parsing.flag("forgetting", "instead, how many training queries each refresh made worse")
    ] = False,
) -> None:
    """Compare finished runs in one table; runs of a recipe with different seeds share a row."""
    if (significance is not None) + bool(improvement_over) + forgetting > 1:
        parsing.refuse("pass one of --significance, --improvement-over and --forgetting")
    if significance is None:
        parsing.refuse_options("--within is an option of --significance", within=within)
    if within is not None and not within > 0:
        parsing.refuse(f"--within {within:g} is not above 0: pass the largest difference without meaning")
    if improvement_over or forgetting:
        parsing.refuse_options("--rows chooses rows of the table of measures", rows=rows)
    if improvement_over and len(runs) > 1:
        parsing.refuse("--improvement-over reads one grid: pass its folder alone")
    from pyserini_ance.evaluation.tables import table_with_legend
    from pyserini_ance.reports import compare, row_tests
    from pyserini_ance.reports.forgetting import forgetting as forgotten

    results = compare.read_distinct(compare.runs_in(runs))
    notes: list[str] = []
    if improvement_over:
        cells, columns = compare.improvements(runs[0], improvement_over)
    elif forgetting:
        folders = (Path(of["run"]) for of in results)
        cells, columns = forgotten(list(zip(compare.labels(results), folders, strict=True)))
    else:
        only = list(rows or ())
        cells, columns = compare.compare(results, only and [*only, *([significance] if significance else [])])
        if significance:
            (tested, [_, *added]), note = row_tests.significance(results, significance, only, within)
            shown = {row["recipe"]: row for row in tested}
            cells = [row | shown.get(row["recipe"], {}) for row in cells]
            columns += added
            notes.append(note)
    variants = compare.variant_legend(results, (row["recipe"] for row in cells))
    print(table_with_legend(cells, columns, *variants, *notes))
