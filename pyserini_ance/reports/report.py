"""`report.html`: what a run did, or several runs compared, as tables and plots on one page that opens without
network."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pyserini_ance.evaluation.legends import legend
from pyserini_ance.evaluation.tables import BM25, SECONDS, cell_text, expected_rows, last_stage
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.variant import differences
from pyserini_ance.reports import compare
from pyserini_ance.reports.plots import bar_plot, line_plot, stacked_shares
from pyserini_ance.reports.run_history import WEIGHTED_SUM, RunHistory, Series, dev_curve, lines_of
from pyserini_ance.reports.templates import render
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_whole

REPORT = "report.html"
GIB = 1 << 30
SHOWN_SETTINGS = 40  # of the settings in which runs differ
UNFOLDED_TABLES, SHOWN_TABLES = 8, 60
RUNNING_MEAN = "Running mean; each step behind it."
MARKS = "Ticks on the axis: refreshed negatives."
Rows = Sequence[Mapping[str, Any]]
Histories = Mapping[str, RunHistory]


@dataclass
class Section:
    """A part of the page, as report.html.j2 shows it: tables and texts, then plots next to one another."""

    heading: str
    parts: list[dict[str, Any]] = field(default_factory=list)
    plots: list[dict[str, str]] = field(default_factory=list)

    def text(self, text: str, kind: str = "note") -> None:
        """`kind`: `note` or `warning`."""
        self.parts.append({"text": text, "kind": kind})

    def table(
        self,
        rows: Rows,
        columns: Sequence[str],
        title: str = "",
        result: str = "",
        legend: Sequence[str] = (),
        folded: bool = False,
    ) -> None:
        """A table with the cells of our Markdown tables, whole numbers with commas.

        Columns without any value are left out. The row whose first cell is `result` is emphasized.
        """
        columns = [column for column in columns if any(row.get(column) is not None for row in rows)]
        cells = [[_cell(row.get(column), column) for column in columns] for row in rows]
        numeric = [
            column
            for column, texts in zip(columns, zip(*cells, strict=True), strict=True)
            if all(re.fullmatch(r"[-+]?[\d.,]*%?", text) for text in texts)
        ]
        table = {"columns": columns, "rows": cells, "numeric": numeric, "title": title, "result": result}
        self.parts.append({**table, "legend": legend, "folded": folded})

    def plot(self, title: str, note: str, svg: str) -> None:
        self.plots.append({"title": title, "note": note, "svg": svg})

    def plot_lines(
        self,
        histories: Histories,
        title: str,
        note: str,
        unit: str,
        lines_of_run: Callable[[RunHistory], Mapping[str, Series]],
        x_label: str = "step",
        **how: Any,
    ) -> bool:
        """Plot lines of the runs, unless they have none; returns whether they have some.

        Lines of one run have their names; of several, the run's, and both for a run with several lines. A run
        without values has an empty line, so that each run has its colour in all plots.
        """
        by_run = {
            run: {name: line for name, line in lines_of_run(history).items() if line.x}
            for run, history in histories.items()
        }
        if not any(by_run.values()):
            return False
        several = len(by_run) > 1
        lines = {
            run if several and len(of_run) <= 1 else f"{run} {name}" if several else name: line
            for run, of_run in by_run.items()
            for name, line in (of_run or {"": Series()}).items()
        }
        self.plot(title, note, line_plot(lines, x_label, unit, **how))
        return True


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
    run = history.run
    results = read_json_object(run.measures)
    lead = "finished" if results else run.describe().removeprefix("a run that ")
    lead += f", {history.steps:,} steps" if history.steps else ""
    if results and (seconds := results["seconds"].get("everything")):
        lead += f", {seconds / 60:.1f} minutes" if seconds < 7200 else f", {seconds / 3600:.1f} hours"
    one = {history.recipe.name: history}
    sections = [_what_was_run(history), _results(history, results), _training(one), _negatives(one)]
    sections.append(_costs(one))
    if results and (command := results.get("export", {}).get("command")):
        sections.append(Section("Search with it", [{"preformatted": command, "title": ""}]))
    return render("report.html.j2", title=history.recipe.name, lead=lead, sections=sections)


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
    finished = [folder for folder in folders if RunDir(folder).measures.exists()]
    sections = [_compared_settings(histories), _compared_results(finished, baseline, test)]
    sections += [_training(histories), _negatives(histories), _costs(histories)]
    names = dict.fromkeys(history.recipe.name for history in histories.values())
    lead = f"{len(folders)} runs of {', '.join(names)}"
    return render("report.html.j2", title="Runs compared", lead=lead, sections=sections)


def _what_was_run(history: RunHistory) -> Section:
    run, recipe, log = history.run, history.recipe, RunLog(history.run, writes=False)
    made, resumes = read_json_object(run.environment) or {}, len(log.decisions("resume"))
    section, state = Section("What was run"), run.read_state()
    if state["status"] in ("failed", "stopped"):
        reason = state.get("reason", "no reason is recorded")
        section.text(f"{state['status']} at {state['where']}: {reason}", "warning")
    command = made.get("command", f"pyserini-ance train {run.recipe} --output {run.folder}")
    facts = {
        "recipe": recipe.name + (f": {recipe.description}" if recipe.description else ""),
        "command": command + (f"; resumed {resumes} x" if resumes else ""),
        "folder": str(run.folder),
        "seed": str(recipe.seed),
    }
    if "packages" in made:
        commit, machine, data = made.get("commit"), made["machine"], made["data"]
        changed = (
            f", commit {commit['hash'][:10]}{' with changed files' * commit['changed']}" if commit else ""
        )
        versions = [f"{name} {version}" for name, version in made["packages"].items() if version]
        queries = ", ".join(f"{count:,} {split}" for split, count in data.get("queries", {}).items())
        facts |= {
            "code": f"pyserini_ance {made['pyserini_ance']}{changed}",
            "versions": ", ".join([f"Python {made['python']}", *versions]),
            "machine": f"{machine['processor']}, {machine['cores']} cores; device {machine['device']}, "
            f"processes: {machine['processes']}, threads of each: {machine['threads']}",
            "data": f"{data['documents']:,} documents; queries: {queries}; digest {data['digest'][:12]}",
        }
    section.parts.append({"facts": facts})
    rows = [_stage_row(name, stage) for name, stage in recipe.stages.items()]
    section.table(rows, list(rows[0]), "Stages")
    if recipe.teachers:
        seconds = log.teacher_seconds()
        rows = [
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
            for name, teacher in recipe.teachers.items()
        ]
        section.table(rows, list(rows[0]), "Cross-encoders trained between stages")
    section.parts.append({"preformatted": dump(recipe), "title": "the whole recipe"})
    return section


def _stage_row(name: str, stage: Stage) -> dict[str, Any]:
    """Its terms read `query: nll, 3 ann, in-batch`."""
    terms = []
    for term_name, term in stage.terms.items():
        sources = [f"{getattr(s, 'num_negatives', '')} {s.kind}".strip() for s in term.negatives]
        parts = [term.loss.kind, *sources, *["in-batch"] * term.in_batch_negatives]
        parts += [f"negatives of {term.negatives_from}"] if term.negatives_from else []
        parts += [f"teacher {term.teacher.kind}"] if term.teacher else []
        parts += [f"weight {term.weight:g}"] if term.weight != 1 else []
        terms.append(f"{term_name}: {', '.join(parts)}")
    refresh = stage.refresh
    return {
        "stage": name,
        "steps": stage.steps,
        "queries": stage.batch_queries,
        "learning rate": f"{stage.optimizer.learning_rate:g}",
        "terms": "; ".join(terms),
        "refresh": refresh and f"every {refresh.every_steps} steps, {refresh.mode}",
    }


def _compared_settings(histories: Histories) -> Section:
    section = Section("What was run")
    rows, settings = [], dict[str, dict[str, Any]]()
    first = next(iter(histories))
    base = histories[first].recipe.model_dump(mode="json")
    for label, history in histories.items():
        commit = (read_json_object(history.run.environment) or {}).get("commit")
        state = "finished" if history.run.measures.exists() else history.run.describe()
        row = {
            "run": label,
            "recipe": history.recipe.name,
            "seed": history.recipe.seed,
            "steps": history.steps,
        }
        rows.append({**row, "commit": commit and commit["hash"][:10], "state": state})
        for key, old, new in differences(base, history.recipe.model_dump(mode="json")):
            settings.setdefault(key, {"setting": key, first: str(old)})[label] = str(new)
    section.table(rows, list(rows[0]))
    if settings:
        shown = list(settings.values())[:SHOWN_SETTINGS]
        section.table(shown, ["setting", *histories], f"Settings that differ from {first}")
    if len(settings) > SHOWN_SETTINGS:
        section.text(f"{len(settings) - SHOWN_SETTINGS} more settings differ.")
    return section


def _results(history: RunHistory, results: Mapping[str, Any] | None) -> Section:
    section = Section("Results")
    if results is None:
        section.text("No results yet: the run has not come to its final evaluation.")
        return section
    rows, measures = results["rows"], results["measures"]
    last = last_stage(rows)
    result = last["row"]
    known = {"row", "init_from", *measures, *SECONDS}
    extra = dict.fromkeys(column for row in rows for column in row if column not in known)
    columns = ["row", *measures, *extra, *(name for name in SECONDS if any(name in row for row in rows))]
    section.table(rows, columns, result=result, legend=_legend(columns))
    for warning in results.get("warnings", ()):
        section.text(warning, "warning")
    if expected := expected_rows(history.recipe, last):
        section.table(expected, list(expected[0]), "Expected and measured")
    else:
        section.text("The recipe expects no scores, or is changed.")
    others = [row["row"] for row in rows if row["row"] != result]
    try:
        tested = compare.significance_in_run(history.run, result, others)
    except (FileNotFoundError, ValueError) as error:
        section.text(f"No significance tests: {error}")
        return section
    if tested:
        cells, columns, note = compare.tested_rows(tested, result)
        section.table(cells, columns, f"{result} against the other rows", legend=[note])
    return section


def _compared_results(finished: Sequence[Path], baseline: str | None, test: str) -> Section:
    section = Section("Results")
    if not finished:
        section.text("No run has finished.")
        return section
    finished, results = compare.read_distinct(finished)
    rows, columns = compare.compare(results)
    baseline = baseline and compare.row_named(baseline, results)
    trained = [row["recipe"] for row in rows if row["runs"] is not None]
    against = baseline or (BM25 if len(trained) == 1 and rows[0]["recipe"] == BM25 else trained[0])
    has_seeds = any(row["runs"] not in (None, 1) for row in rows)
    lines = _legend([column for column in columns if column != "runs" or has_seeds])
    lines += compare.variant_legend(results, (row["recipe"] for row in rows))
    section.table(rows, columns, legend=lines)
    try:
        tested = compare.significance(finished, results, against, test)
    except (FileNotFoundError, ValueError) as error:
        if baseline:
            raise
        section.text(f"No significance tests: {error}")
        return section
    if tested:
        cells = [{"recipe": row, **compare.significance_cells(of, against)} for row, of in tested.items()]
        line = compare.significance_legend(against, test, len(tested))
        section.table(cells, list(cells[0]), f"Against {against}", legend=[line])
    return section


def _costs(histories: Histories) -> Section:
    section, one = Section("Time and memory"), _only(histories)
    seconds, peaks_bytes = dict[str, dict[str, float]](), dict[str, Mapping[str, int]]()
    for label, history in histories.items():
        results = read_json_object(history.run.measures)
        for part, value in history.seconds(results).items():
            seconds.setdefault(part, {})["seconds" if one else label] = value
        if one:
            recorded = [record for record in history.of_event("refresh") if "memory_bytes" in record]
            peaks_bytes |= {record["stage"]: record["memory_bytes"] for record in recorded}
        if results and "memory_bytes" in results:
            peaks_bytes["the run, all processes" if one else label] = results["memory_bytes"]
    frame = pd.DataFrame.from_dict(seconds, orient="index").fillna(0.0)
    if len(frame):
        frame = frame.loc[frame.max(axis=1).sort_values(ascending=False, kind="stable").index]
        if one:
            section.plot("Time by part", "", bar_plot(frame["seconds"].to_dict(), "seconds"))
        frame.loc["all"] = frame.sum()
        cells = {column: frame[column].map("{:.1f}".format) for column in frame}
        cells |= {"share": (frame["seconds"] / frame["seconds"]["all"]).map("{:.0%}".format)} if one else {}
        rows = pd.DataFrame(cells).rename_axis("part").reset_index()
        section.table(rows.to_dict("records"), list(rows), "Seconds by part")
    first, kinds = (
        "until the end of" if one else "run",
        dict.fromkeys(k for p in peaks_bytes.values() for k in p),
    )
    rows_of_memory = [
        {first: name, **{kind: f"{value / GIB:.2f}" for kind, value in peaks.items() if value}}
        for name, peaks in peaks_bytes.items()
    ]
    if rows_of_memory:
        section.table(rows_of_memory, [first, *kinds], "Peak memory in GiB")
    else:
        section.text("Memory was not recorded.")
    return section


def _training(histories: Histories) -> Section:
    section, one = Section("Training"), _only(histories)
    stages, (marks, minutes) = _stages(one), one.refreshes() if one else ([], [])
    starts, ticks = "Dotted lines: a stage begins." * bool(stages), MARKS * bool(marks)
    smooth: dict[str, Any] = {"stages": stages, "smooth": True}

    def loss(history: RunHistory) -> dict[str, Series]:
        """The losses of a single run; one line of each of several."""
        lines = history.losses()
        return {name: s for name, s in lines.items() if one or len(lines) == 1 or name == WEIGHTED_SUM}

    def dev_over_minutes(history: RunHistory) -> dict[str, Series]:
        points = dev_curve(history.records)
        return lines_of((p["seconds"] / 60, p["stage"], {p["measure"]: p["value"]}) for p in points)

    note = f"{RUNNING_MEAN} {starts}".strip()
    section.plot_lines(histories, "Loss by term" if one else "Loss", note, "loss", loss, **smooth)
    if scores := [record for history in histories.values() for record in history.of_event("dev")]:
        measure = "dev " + ", ".join(dict.fromkeys(record["measure"] for record in scores))
        best = max(scores, key=lambda record: record["value"])
        found = f"Best: {best['value']:.4f} at {best['stage']}, step {best['checkpoint_step']}." * bool(one)
        note = " ".join(filter(None, [found, starts, ticks]))
        how: dict[str, Any] = {"marks": marks, "stages": stages}
        section.plot_lines(
            histories, "Dev measure over steps", note, measure, RunHistory.dev, points=True, **how
        )
        note = f"Refreshes and waiting count, evaluation does not. {ticks}".strip()
        how = {"x_label": "minutes of training", "marks": minutes, "points": True}
        section.plot_lines(histories, "Dev measure over time", note, measure, dev_over_minutes, **how)
    else:
        section.text("The dev measure was not evaluated during training.")
    title = "Gradient norm before clipping"
    section.plot_lines(
        histories, title, RUNNING_MEAN, "L2 norm", lambda h: h.step_values("grad_norm"), **smooth
    )
    note, unit = "What each step retrieved for its queries.", "mean over the step's queries"
    section.plot_lines(histories, "Live searches", note, unit, RunHistory.live_searches, **smooth)
    return section


def _negatives(histories: Histories) -> Section:
    section, one = Section("Negatives"), _only(histories)
    if not any(history.tables for history in histories.values()):
        section.text("No negatives were mined.")
        return section
    how: dict[str, Any] = {"stages": _stages(one)}
    from_zero, points = how | {"from_zero": True}, how | {"points": True}

    def over_tables(*keys: str) -> Callable[[RunHistory], dict[str, Series]]:
        """The line of each table of a value that may be missing."""
        first, *more = keys
        read = (lambda values: values.get(first, {}).get(more[0])) if more else (lambda values: values[first])
        return lambda history: history.over_tables(read)

    note = "Steps since the checkpoint that mined the negatives in use."
    if not section.plot_lines(
        histories, "Staleness", note, "age in steps", lambda h: {"age": h.ages()}, **from_zero
    ):
        section.text("All negatives are static: they do not age.")
    note = "Candidates that the tables before the refresh lacked."
    section.plot_lines(
        histories, "Turnover", note, "share of the candidates", over_tables("new_share"), **points | from_zero
    )
    kinds = dict.fromkeys(table.values["kind"] for h in histories.values() for table in h.tables)
    for kind in kinds:  # scores of different kinds have different scales
        note = "Score of the best positive minus the mean score of the candidates"
        bands = {}
        if one:
            low, high = over_tables("margin", "p10")(one), over_tables("margin", "p90")(one)
            bands = {name: (low[name], high[name]) for name in low}
            note += "; mean, and 10th to 90th percentile"

        def margins(history: RunHistory, end: str = f": {kind}") -> dict[str, Series]:
            lines = over_tables("margin", "mean")(history)
            return {name: line for name, line in lines.items() if name.endswith(end)}

        title = "Margin" + f" of {kind}" * (len(kinds) > 1)
        section.plot_lines(histories, title, f"{note}.", "score", margins, bands=bands, **points)
    title, unit = "Positives in the mined ranking", "mean reciprocal rank"
    note = "Mean reciprocal rank of the training queries' positives; 0 beyond the ranking."
    section.plot_lines(
        histories, title, note, unit, over_tables("positives", "mean_reciprocal_rank"), **points
    )
    shares = one.composition() if one else {}
    if len(shares) > 1:
        plot = stacked_shares(shares, "step of the adoption", "share of the candidates")
        section.plot("Composition", "Candidates in use, by the source that retrieved them.", plot)
    elif shares:
        section.text(f"All mined candidates are of one source: {next(iter(shares))}.")

    def dropped(history: RunHistory) -> dict[str, Series]:
        return {name: line for name, line in history.dropped().items() if any(line.y)}

    note = "Candidates that each refresh mined and a filter removed."
    section.plot_lines(histories, "Dropped by filters", note, "candidates", dropped, **points | from_zero)
    lines = [(name, line) for h in histories.values() for name, line in h.dropped().items()]
    if never := dict.fromkeys(name for name, line in lines if not any(line.y)):
        section.text(f"Filters that dropped nothing: {', '.join(never)}.")

    def ignored(history: RunHistory) -> dict[str, Series]:
        return history.over_steps(lambda record: record.get("false_negatives", {}))

    note = "Pairs of a step that false_negative_margin leaves out."
    section.plot_lines(histories, "Ignored pairs", note, "pairs", ignored, smooth=True, **from_zero)
    if one:
        _table_of_tables(section, one)
    return section


def _table_of_tables(section: Section, history: RunHistory) -> None:
    rows = [
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
    folded = len(rows) > UNFOLDED_TABLES
    title = f"the {len(rows)} mined tables" if folded else "Mined tables"
    more = f"The last {SHOWN_TABLES} of {len(rows)} tables; all are in metrics.jsonl."
    notes = [more] * (len(rows) > SHOWN_TABLES)
    section.table(rows[-SHOWN_TABLES:], list(rows[0]), title, legend=notes, folded=folded)


def _only(histories: Histories) -> RunHistory | None:
    return next(iter(histories.values())) if len(histories) == 1 else None


def _stages(one: RunHistory | None) -> list[float]:
    """The positions at which the stages of a single run begin, but for the first."""
    return [float(first) for first, _ in one.stages.values()][1:] if one else []


def _legend(columns: Sequence[str]) -> list[str]:
    """The lines below a table of these columns."""
    return [line.removeprefix("- ") for line in legend(columns).splitlines()]


def _cell(value: Any, column: str) -> str:
    return f"{value:,}" if isinstance(value, int) else cell_text(value, column)
