"""`report.html`: what a run did, or several runs compared, as tables and plots on one page that opens without
network. The page and its plots are declared in report.html.j2."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from pyserini_ance.evaluation.legends import legend
from pyserini_ance.evaluation.tables import BM25, SECONDS, cell_text, expected_rows, last_stage
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.variant import differences
from pyserini_ance.reports import compare, row_tests
from pyserini_ance.reports.plots import line_plot
from pyserini_ance.reports.run_history import WEIGHTED_SUM, RunHistory, Series
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_whole

REPORT = "report.html"
GIB = 1 << 30
Rows = Sequence[Mapping[str, Any]]
Histories = Mapping[str, RunHistory]


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
    run.read_state()
    path = path or run.folder / REPORT
    write_whole(path, run_report(RunHistory(run)))
    return path


def run_report(history: RunHistory) -> str:
    """The page of one run."""
    run, recipe = history.run, history.recipe
    results = read_json_object(run.measures)
    made = read_json_object(run.environment) or {}
    lead = "finished" if results else run.describe().removeprefix("a run that ")
    lead += f", {history.steps:,} steps" if history.steps else ""
    if results and (seconds := results["seconds"].get("everything")):
        lead += f", {seconds / 60:.1f} minutes" if seconds < 7200 else f", {seconds / 3600:.1f} hours"
    values: dict[str, Any] = {"measures": None}
    if results:
        rows, measures = results["rows"], results["measures"]
        known = {"row", "init_from", *measures, *SECONDS}
        extra = dict.fromkeys(column for row in rows for column in row if column not in known)
        columns = ["row", *measures, *extra, *(name for name in SECONDS if any(name in row for row in rows))]
        values = {
            "measures": _cells(rows, columns),
            "legend": legend(columns),
            "result": last_stage(rows)["row"],
            "warnings": results.get("warnings", ()),
            "expected": expected_rows(recipe, last_stage(rows)),
            **_tests(partial(row_tests.significance_in_run, run, rows)),
        }
    return _page(
        {recipe.name: history},
        one=history,
        marks=[history.position(record) for record in history.adoptions],
        title=recipe.name,
        lead=lead,
        state={"reason": None, **run.read_state()},
        made={"packages": None, "commit": None, **made},
        command=made.get("command", f"pyserini-ance train {run.recipe} --output {run.folder}"),
        resumes=len(RunLog(run, writes=False).decisions("resume")),
        whole_recipe=dump(recipe),
        search_command=(results or {}).get("export", {}).get("command"),
        **values,
    )


def comparison_report(folders: Sequence[Path], baseline: str | None = None, test: str = "t") -> str:
    """The page of several runs; `baseline` is the row that the others are tested against: by default the
    first run's.

    Raises ValueError as `compare.compare` and `row_tests.significance` do; a default baseline that cannot be
    tested against is only noted.
    """
    parent = os.path.commonpath([folder.resolve() for folder in folders])
    histories = {str(folder.resolve().relative_to(parent)): RunHistory(RunDir(folder)) for folder in folders}
    rows = []
    settings: dict[str, dict[str, Any]] = {}
    first = next(iter(histories))
    base = histories[first].recipe.model_dump(mode="json")
    for label, history in histories.items():
        run, recipe = history.run, history.recipe
        state = "finished" if run.measures.exists() else run.describe()
        row = {"run": label, "recipe": recipe.name, "seed": recipe.seed, "steps": history.steps}
        rows.append({**row, "state": state})
        for key, old, new in differences(base, recipe.model_dump(mode="json")):
            settings.setdefault(key, {"setting": key, first: str(old)})[label] = str(new)
    finished = [folder for folder in folders if RunDir(folder).measures.exists()]
    names = dict.fromkeys(history.recipe.name for history in histories.values())
    return _page(
        histories,
        one=None,
        marks=[],
        title="Runs compared",
        lead=f"{len(folders)} runs of {', '.join(names)}",
        runs=rows,
        settings=list(settings.values()),
        **(_compared_results(finished, baseline, test) if finished else {"measures": None}),
    )


def _compared_results(finished: Sequence[Path], baseline: str | None, test: str) -> dict[str, Any]:
    results = compare.read_distinct(finished)
    rows, columns = compare.compare(results)
    trained = [row["recipe"] for row in rows if row["runs"] is not None]
    against = baseline or (BM25 if len(trained) == 1 and rows[0]["recipe"] == BM25 else trained[0])
    has_seeds = any(row["runs"] not in (None, 1) for row in rows)
    variants = compare.variant_legend(results, (row["recipe"] for row in rows))
    return {
        "measures": _cells(rows, columns),
        "legend": legend([column for column in columns if column != "runs" or has_seeds], *variants),
        "result": "",
        "warnings": (),
        "expected": None,
        "against": against,
        **_tests(partial(row_tests.significance, results, against, test), is_asked=baseline is not None),
    }


def _tests(test: Callable[[], tuple[compare.Table, str]], is_asked: bool = False) -> dict[str, Any]:
    """The table of `test` with its note, or why there is none; an error if the user asked for it."""
    try:
        table, note = test()
    except (FileNotFoundError, ValueError) as error:
        if is_asked:
            raise
        return {"untested": error}
    return {"untested": None, "tests": _cells(*table), "note": note}


def _page(histories: Histories, **values: Any) -> str:
    """The page, with what one run and several have alike."""
    results = {label: read_json_object(history.run.measures) for label, history in histories.items()}
    of_runs = {label: history.seconds(results[label]) for label, history in histories.items()}
    seconds = pd.DataFrame.from_dict(of_runs, orient="index").T.fillna(0.0)
    seconds = seconds.loc[seconds.max(axis=1).sort_values(ascending=False, kind="stable").index]
    if len(seconds):
        seconds.loc["all"] = seconds.sum()
    peaks = {label: of["memory_bytes"] for label, of in results.items() if of and "memory_bytes" in of}
    memory = [
        {"run": label, **{kind: f"{value / GIB:.2f}" for kind, value in of.items() if value}}
        for label, of in peaks.items()
    ]
    return render(
        "report.html.j2",
        histories=histories,
        cells=_cells,
        plot=partial(_plot, histories),
        scores=[record for history in histories.values() for record in history.of_event("dev")],
        has_mined=any(history.of_event("generation") for history in histories.values()),
        plots=sorted({plot for history in histories.values() for plot in history.lines}),
        seconds=seconds.map("{:.1f}".format).rename_axis("part").reset_index().to_dict("records"),
        memory=memory,
        **values,
    )


def _plot(histories: Histories, key: str, unit: str, **how: Any) -> str:
    """The plot of the lines `key` of the runs' histories; "" without lines. `how`: settings of `line_plot`.

    Lines of one run have their names; of several, the run's, and both for a run with several lines, of which
    a weighted sum stands for all. A run without values has an empty line, so that each run has its colour in
    all plots.
    """
    lines: dict[str, Series] = {}
    for run, history in histories.items():
        own = history.lines.get(key) or {"": Series()}
        if len(histories) > 1 and WEIGHTED_SUM in own:
            own = {WEIGHTED_SUM: own[WEIGHTED_SUM]}
        for name, line in own.items():
            label = run if len(own) == 1 else f"{run} {name}"
            lines[name if len(histories) == 1 else label] = line
    return line_plot(lines, unit, **how) if any(line.x for line in lines.values()) else ""


def _cells(rows: Rows, columns: Sequence[str] = ()) -> dict[str, Any]:
    """A table with the cells of our Markdown tables; columns without any value are left out."""
    columns = columns or list(dict.fromkeys(name for row in rows for name in row))
    shown = [column for column in columns if any(row.get(column) is not None for row in rows)]
    cells = [[cell_text(row.get(column), column) for column in shown] for row in rows]
    return {"columns": shown, "rows": cells}
