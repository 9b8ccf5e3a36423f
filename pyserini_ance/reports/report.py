"""`report.html`: what a run did, as tables and plots on one page that opens without network. The page and its
plots are declared in report.html.j2."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from pyserini_ance.evaluation.tables import SECONDS, cell_text, expected_rows, last_stage, legend
from pyserini_ance.recipe.load import dump
from pyserini_ance.reports.row_tests import significance_in_run
from pyserini_ance.reports.run_history import RunHistory, line_plot
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_whole

REPORT = "report.html"
GIB = 1 << 30
Rows = Sequence[Mapping[str, Any]]


def render(template: str, **values: Any) -> str:
    """A page or card of this package's templates; values are escaped in HTML."""
    environment = Environment(
        loader=PackageLoader("pyserini_ance", "reports"),
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)


def write_report(run: RunDir, path: Path | None = None) -> Path:
    """Write the report of a run, finished or not, into its folder, or to `path`; return the file.

    Raises FileNotFoundError for a folder without a run, RuntimeError if another version wrote the run.
    """
    state = run.read_state()
    recipe = (history := RunHistory(run)).recipe
    results = run.read_measures() if run.measures.exists() else None
    made = read_json_object(run.environment) or {}
    lead = "finished" if results else run.describe().removeprefix("a run that ")
    lead += f", {history.steps:,} steps" if history.steps else ""
    if results and (seconds := results["seconds"].get("everything")):
        lead += f", {seconds / 60:.1f} minutes" if seconds < 7200 else f", {seconds / 3600:.1f} hours"
    parts = sorted(history.seconds(results).items(), key=lambda part: -part[1])
    parts += [("all", sum(seconds for _, seconds in parts))] if parts else []
    peaks = (results or {}).get("memory_bytes", {})
    page = render(
        "report.html.j2",
        recipe=recipe,
        folder=run.folder,
        lead=lead,
        state={"reason": None, **state},
        made={"packages": None, "commit": None, **made},
        command=made.get("command", f"pyserini-ance train {run.recipe} --output {run.folder}"),
        resumes=len(RunLog(run, writes=False).decisions("resume")),
        whole_recipe=dump(recipe),
        search_command=(results or {}).get("export", {}).get("command"),
        history=history,
        marks=[history.position(record) for record in history.adoptions],
        scores=history.of_event("dev"),
        cells=_cells,
        plot=line_plot,
        seconds=[{"part": part, "seconds": spent} for part, spent in parts],
        memory=[{kind: f"{peak / GIB:.2f}" for kind, peak in peaks.items() if peak}],
        **(_results(run, results) if results else {"measures": None}),
    )
    path = path or run.folder / REPORT
    write_whole(path, page)
    return path


def _results(run: RunDir, results: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a finished run, and tests of its result against the other rows, or why there is none."""
    rows, measures, result = results["rows"], results["measures"], last_stage(results["rows"])
    known = {"row", "init_from", *measures, *SECONDS}
    extra = dict.fromkeys(column for row in rows for column in row if column not in known)
    columns = ["row", *measures, *extra, *(name for name in SECONDS if any(name in row for row in rows))]
    try:
        table, note = significance_in_run(run, rows)
        tests = {"untested": None, "tests": _cells(*table), "note": note}
    except (FileNotFoundError, ValueError) as error:
        tests = {"untested": str(error)}
    return {
        "measures": _cells(rows, columns),
        "legend": legend(columns),
        "result": result["row"],
        "warnings": results.get("warnings", ()),
        "expected": expected_rows(run.read_recipe(), result),
        **tests,
    }


def _cells(rows: Rows, columns: Sequence[str] = ()) -> dict[str, Any]:
    """A table with the cells of our Markdown tables; columns without any value are left out."""
    columns = columns or list(dict.fromkeys(name for row in rows for name in row))
    shown = [column for column in columns if any(row.get(column) is not None for row in rows)]
    cells = [[cell_text(row.get(column), column) for column in shown] for row in rows]
    return {"columns": shown, "rows": cells}
