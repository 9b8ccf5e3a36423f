"""`report.html`: what a run did, or several runs compared, as tables and plots on one page that opens without
network. The page and its plots are declared in report.html.j2."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from pyserini_ance.evaluation.legends import legend
from pyserini_ance.evaluation.tables import BM25, SECONDS, cell_text, expected_rows, last_stage
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.variant import differences
from pyserini_ance.reports import compare
from pyserini_ance.reports.plots import bar_plot, line_plot, stacked_shares
from pyserini_ance.reports.run_history import PERCENTILES, WEIGHTED_SUM, RunHistory, Series
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
    log = RunLog(run, writes=False)
    results = read_json_object(run.measures)
    made = read_json_object(run.environment) or {}
    lead = "finished" if results else run.describe().removeprefix("a run that ")
    lead += f", {history.steps:,} steps" if history.steps else ""
    if results and (seconds := results["seconds"].get("everything")):
        lead += f", {seconds / 60:.1f} minutes" if seconds < 7200 else f", {seconds / 3600:.1f} hours"
    composition = ""
    shares = history.lines["composition"]
    if len(shares) > 1:
        composition = stacked_shares(shares, "step of the adoption", "share of the candidates")
    return _page(
        {recipe.name: history},
        title=recipe.name,
        lead=lead,
        state={"reason": None, **run.read_state()},
        made={"packages": None, "commit": None, **made},
        command=made.get("command", f"pyserini-ance train {run.recipe} --output {run.folder}"),
        resumes=len(log.decisions("resume")),
        teachers=_teachers(history, log),
        whole_recipe=dump(recipe),
        mined=_mined_tables(history),
        composition=composition,
        search_command=(results or {}).get("export", {}).get("command"),
        **(_results(history, results) if results else {"measures": None}),
    )


def comparison_report(folders: Sequence[Path], baseline: str | None = None, test: str = "t") -> str:
    """The page of several runs; `baseline` is the row that the others are tested against: by default the
    first run's.

    Raises ValueError as `compare.compare` and `compare.significance` do; a default baseline that cannot be
    tested against is only noted.
    """
    histories: dict[str, RunHistory] = {}
    for folder in folders:  # by name, with as many parents as make the names differ; none comes twice
        parts = folder.resolve().parts
        others = [other.resolve().parts for other in folders if other != folder]
        count = next(n for n in range(1, len(parts) + 1) if all(o[-n:] != parts[-n:] for o in others))
        histories["/".join(parts[-count:])] = RunHistory(RunDir(folder))
    rows = []
    settings: dict[str, dict[str, Any]] = {}
    first = next(iter(histories))
    base = histories[first].recipe.model_dump(mode="json")
    for label, history in histories.items():
        run, recipe = history.run, history.recipe
        commit = (read_json_object(run.environment) or {}).get("commit")
        row = {"run": label, "recipe": recipe.name, "seed": recipe.seed, "steps": history.steps}
        state = "finished" if run.measures.exists() else run.describe()
        rows.append({**row, "commit": commit and commit["hash"][:10], "state": state})
        for key, old, new in differences(base, recipe.model_dump(mode="json")):
            settings.setdefault(key, {"setting": key, first: str(old)})[label] = str(new)
    finished = [folder for folder in folders if RunDir(folder).measures.exists()]
    names = dict.fromkeys(history.recipe.name for history in histories.values())
    return _page(
        histories,
        title="Runs compared",
        lead=f"{len(folders)} runs of {', '.join(names)}",
        runs=rows,
        settings=list(settings.values()),
        composition="",
        **(_compared_results(finished, baseline, test) if finished else {"measures": None}),
    )


def _page(histories: Histories, **values: Any) -> str:
    """The page, with what one run and several have alike."""
    one = _only(histories)
    dropped = [pair for history in histories.values() for pair in history.lines["dropped"].items()]
    positions, minutes = one.refreshes() if one else ([], [])
    return render(
        "report.html.j2",
        one=one,
        histories=histories,
        cells=_cells,
        plot=partial(_plot, histories),
        scores=[record for history in histories.values() for record in history.of_event("dev")],
        starts=one.starts if one else [],
        marks=positions,
        minutes=minutes,
        kinds=dict.fromkeys(table.values["kind"] for h in histories.values() for table in h.tables),
        undropped=dict.fromkeys(name for name, line in dropped if not any(line.y)),
        **_costs(histories),
        **values,
    )


def _plot(histories: Histories, key: str, unit: str, kind: str = "", **how: Any) -> str:
    """The plot of the lines `key` of the runs' histories, of one kind of source if that is given; "" without
    lines. `how`: settings of `line_plot`.

    Lines of one run have their names; of several, the run's, and both for a run with several lines, of which
    a weighted sum stands for all. A run without values has an empty line, so that each run has its colour in
    all plots.
    """
    one = _only(histories)
    lines: dict[str, Series] = {}
    for run, history in histories.items():
        ending = f": {kind}" if kind else ""
        named = {name: line for name, line in history.lines[key].items() if name.endswith(ending)}
        if key == "dropped":
            named = {name: line for name, line in named.items() if any(line.y)}
        if not one and WEIGHTED_SUM in named:
            named = {"": named[WEIGHTED_SUM]}
        for name, line in (named or {"": Series()}).items():
            of_several = run if len(named) <= 1 else f"{run} {name}"
            lines[name if one else of_several] = line
    if one and key == "margin":
        low, high = (one.lines[f"margin {percentile}"] for percentile in PERCENTILES)
        how["bands"] = {name: (low[name], high[name]) for name in low}
    settings = {"x_label": "step", "stages": one.starts if one else (), **how}
    return line_plot(lines, y_label=unit, **settings) if any(line.x for line in lines.values()) else ""


def _cells(rows: Rows, columns: Sequence[str] = ()) -> dict[str, Any]:
    """A table with the cells of our Markdown tables, whole numbers with commas; all columns by default.

    Columns without any value are left out.
    """
    named = columns or dict.fromkeys(name for row in rows for name in row)
    shown = [column for column in named if any(row.get(column) is not None for row in rows)]
    cells = [[_cell(row.get(column), column) for column in shown] for row in rows]
    numeric = [
        column
        for column, texts in zip(shown, zip(*cells, strict=True), strict=bool(cells))
        if all(re.fullmatch(r"[-+]?[\d.,]*%?", text) for text in texts)
    ]
    return {"columns": shown, "rows": cells, "numeric": numeric}


def _cell(value: Any, column: str) -> str:
    return f"{value:,}" if isinstance(value, int) else cell_text(value, column)


def _teachers(history: RunHistory, log: RunLog) -> Rows:
    seconds = log.teacher_seconds()
    return [
        {
            "teacher": name,
            "after": teacher.after,
            "init_from": str(teacher.init_from),
            "steps": teacher.steps or "one pass",
            "queries": teacher.batch_queries,
            "negatives": teacher.num_negatives,
            "learning rate": f"{teacher.learning_rate:g}",
            "mining seconds": seconds.get(name, {}).get("mine"),
            "training seconds": seconds.get(name, {}).get("train"),
        }
        for name, teacher in history.recipe.teachers.items()
    ]


def _mined_tables(history: RunHistory) -> Rows:
    return [
        {
            "stage": table.stage,
            "adopted at": table.record["step"],
            "of checkpoint": table.record["checkpoint_step"],
            "waited seconds": float(table.record["waited_seconds"]),
            "table": table.label,
            "candidates": table.values["candidates"],
            "new": None if table.values["new_share"] is None else f"{table.values['new_share']:.1%}",
            "margin": table.values.get("margin", {}).get("mean"),
            "dropped": sum(table.values["dropped"].values()),
            "promoted": table.values.get("promoted"),
            "anchors left out": table.values.get("left_out"),
        }
        for table in history.tables
    ]


def _results(history: RunHistory, results: Mapping[str, Any]) -> dict[str, Any]:
    rows, measures = results["rows"], results["measures"]
    last = last_stage(rows)
    known = {"row", "init_from", *measures, *SECONDS}
    extra = dict.fromkeys(column for row in rows for column in row if column not in known)
    columns = ["row", *measures, *extra, *(name for name in SECONDS if any(name in row for row in rows))]
    values = {
        "measures": _cells(rows, columns),
        "legend": legend(columns),
        "result": last["row"],
        "warnings": results.get("warnings", ()),
        "expected": expected_rows(history.recipe, last),
        "untested": None,
    }
    try:
        table, note = compare.significance_in_run(history.run, rows)
    except (FileNotFoundError, ValueError) as error:
        return values | {"untested": error}
    return values | {"tests": _cells(*table), "note": note}


def _compared_results(finished: Sequence[Path], baseline: str | None, test: str) -> dict[str, Any]:
    results = compare.read_distinct(finished)
    rows, columns = compare.compare(results)
    trained = [row["recipe"] for row in rows if row["runs"] is not None]
    against = BM25 if len(trained) == 1 and rows[0]["recipe"] == BM25 else trained[0]
    has_seeds = any(row["runs"] not in (None, 1) for row in rows)
    variants = compare.variant_legend(results, (row["recipe"] for row in rows))
    values = {
        "measures": _cells(rows, columns),
        "legend": legend([column for column in columns if column != "runs" or has_seeds], *variants),
        "result": "",
        "warnings": (),
        "expected": None,
        "untested": None,
    }
    try:
        against = compare.row_named(baseline, results) if baseline else against
        table, note = compare.significance(results, against, test)
    except (FileNotFoundError, ValueError) as error:
        if baseline:
            raise
        return values | {"untested": error}
    return values | {"against": against, "tests": _cells(*table), "note": note}


def _costs(histories: Histories) -> dict[str, Any]:
    """Rows of seconds by part, with a plot of them for one run, and of peak memory."""
    one = _only(histories)
    seconds: dict[str, dict[str, float]] = {}
    peaks_bytes: dict[str, Mapping[str, int]] = {}
    for label, history in histories.items():
        results = read_json_object(history.run.measures)
        for part, value in history.seconds(results).items():
            seconds.setdefault(part, {})["seconds" if one else label] = value
        if one:
            recorded = [record for record in history.of_event("refresh") if "memory_bytes" in record]
            peaks_bytes |= {record["stage"]: record["memory_bytes"] for record in recorded}
        if results and "memory_bytes" in results:
            peaks_bytes["the run, all processes" if one else label] = results["memory_bytes"]
    first = "until the end of" if one else "run"
    memory = [
        {first: name, **{kind: f"{value / GIB:.2f}" for kind, value in peaks.items() if value}}
        for name, peaks in peaks_bytes.items()
    ]
    if not seconds:
        return {"seconds": [], "times": "", "memory": memory}
    frame = pd.DataFrame.from_dict(seconds, orient="index").fillna(0.0)
    frame = frame.loc[frame.max(axis=1).sort_values(ascending=False, kind="stable").index]
    times = bar_plot(frame["seconds"].to_dict(), "seconds") if one else ""
    frame.loc["all"] = frame.sum()
    cells = {column: frame[column].map("{:.1f}".format) for column in frame}
    cells |= {"share": (frame["seconds"] / frame["seconds"]["all"]).map("{:.0%}".format)} if one else {}
    rows = pd.DataFrame(cells).rename_axis("part").reset_index().to_dict("records")
    return {"seconds": rows, "times": times, "memory": memory}


def _only(histories: Histories) -> RunHistory | None:
    return next(iter(histories.values())) if len(histories) == 1 else None
