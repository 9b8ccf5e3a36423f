"""`report.html`: what a run did, as tables and plots on one page that opens without network."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.evaluation.legends import legend
from pyserini_ance.evaluation.significance import Difference
from pyserini_ance.evaluation.tables import SECONDS, expected_rows, last_stage
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.teacher_training import TrainedTeacher
from pyserini_ance.reports import report_page as html
from pyserini_ance.reports.report_curves import negatives, training
from pyserini_ance.reports.report_page import Section
from pyserini_ance.reports.report_plots import bar_plot, check_installed
from pyserini_ance.reports.run_comparison import significance_in_run
from pyserini_ance.reports.run_history import RunHistory
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_whole

REPORT = "report.html"
GIB = 1 << 30
log = logging.getLogger(__name__)


def write_report(run: RunDir, path: Path | None = None) -> Path:
    """Write the report of a run, finished or not, into its folder, or to `path`; return the file.

    Raises FileNotFoundError for a folder without a run, RuntimeError without matplotlib, or if another
    version wrote the run.
    """
    check_installed()
    run.read_state()
    path = path or run.folder / REPORT
    write_whole(path, run_report(RunHistory(run)))
    return path


def run_report(history: RunHistory) -> str:
    """The page of one run."""
    run = history.run
    results = read_json_object(run.measures)
    lead = "finished" if results else run.describe().removeprefix("a run that ")
    if results and "everything" in results["seconds"]:
        lead += f", {history.steps:,} steps, {_duration(results['seconds']['everything'])}"
    elif history.steps:
        lead += f", {history.steps:,} steps"
    histories = {history.recipe.name: history}
    sections = [
        _what_was_run(history),
        _results(run, history, results),
        training(histories),
        negatives(histories),
        _costs(history, results),
    ]
    if results and (command := results.get("export", {}).get("command")):
        sections.append(Section("Search with it", [html.preformatted(command)]))
    return html.page(history.recipe.name, lead, sections)


def _what_was_run(history: RunHistory) -> Section:
    run, recipe = history.run, history.recipe
    environment = read_json_object(run.environment) or {}
    resumes = len(RunLog(run, writes=False).decisions("resume"))
    started = f"pyserini-ance train {run.recipe} --output {run.folder}"
    section = Section("What was run")
    state = run.read_state()
    if state["status"] in ("failed", "stopped"):
        reason = f"{state['status']} at {state['where']}: {state.get('reason', 'no reason is recorded')}"
        section.add(html.paragraph(reason, "warning"))
    section.add(
        html.definitions(
            {
                "recipe": recipe.name + (f": {recipe.description}" if recipe.description else ""),
                "command": environment.get("command", started) + (f"; resumed {resumes} x" * bool(resumes)),
                "folder": str(run.folder),
                "seed": str(recipe.seed),
                **_environment(environment),
            }
        )
    )
    rows = [_stage_row(name, stage) for name, stage in recipe.stages.items()]
    columns = ["stage", "steps", "queries", "learning rate", "terms", "refresh"]
    section.add(html.subheading("Stages"), html.table(rows, columns, long=["terms"]))
    if recipe.teachers:
        seconds = RunLog(run, writes=False).teacher_seconds()
        rows = [_teacher_row(name, one, seconds.get(name, {})) for name, one in recipe.teachers.items()]
        section.add(html.subheading("Cross-encoders trained between stages"), html.table(rows, list(rows[0])))
    section.add(html.folded("the whole recipe", html.preformatted(dump(recipe))))
    return section


def _teacher_row(name: str, teacher: TrainedTeacher, seconds: Mapping[str, float]) -> dict[str, Any]:
    return {
        "teacher": name,
        "after": teacher.after,
        "init_from": str(teacher.init_from),
        "steps": teacher.steps or "one pass",
        "queries": teacher.batch_queries,
        "negatives": teacher.num_negatives,
        "learning rate": f"{teacher.learning_rate:g}",
        "mining seconds": seconds.get("mine"),
        "training seconds": seconds.get("train"),
    }


def _environment(environment: Mapping[str, Any]) -> dict[str, str]:
    """The recorded versions, machine and data, in words."""
    if "packages" not in environment:
        return {}
    commit, machine, data = environment.get("commit"), environment["machine"], environment["data"]
    code = f"pyserini_ance {environment['pyserini_ance']}"
    if commit:
        code += f", commit {commit['hash'][:10]}{' with changed files' * commit['changed']}"
    packages = (f"{name} {version}" for name, version in environment["packages"].items() if version)
    queries = ", ".join(f"{count:,} {split}" for split, count in data.get("queries", {}).items())
    return {
        "code": code,
        "versions": ", ".join([f"Python {environment['python']}", *packages]),
        "machine": f"{machine['processor']}, {machine['cores']} cores; device {machine['device']}, "
        f"processes: {machine['processes']}, threads of each: {machine['threads']}",
        "data": f"{data['documents']:,} documents; queries: {queries}; digest {data['digest'][:12]}",
    }


def _stage_row(name: str, stage: Stage) -> dict[str, Any]:
    refresh = stage.refresh
    return {
        "stage": name,
        "steps": stage.steps,
        "queries": stage.batch_queries,
        "learning rate": f"{stage.optimizer.learning_rate:g}",
        "terms": "; ".join(_term(term_name, stage) for term_name in stage.terms),
        "refresh": refresh and f"every {refresh.every_steps} steps, {refresh.mode}",
    }


def _term(name: str, stage: Stage) -> str:
    """A term in words: `query: nll, 3 ann, in-batch`."""
    term = stage.terms[name]
    sources = [f"{getattr(source, 'num_negatives', '')} {source.kind}".strip() for source in term.negatives]
    parts = [term.loss.kind, *sources, *["in-batch"] * term.in_batch_negatives]
    if term.negatives_from:
        parts.append(f"negatives of {term.negatives_from}")
    if term.teacher:
        parts.append(f"teacher {term.teacher.kind}")
    if term.weight != 1:
        parts.append(f"weight {term.weight:g}")
    return f"{name}: {', '.join(parts)}"


def _results(run: RunDir, history: RunHistory, results: Mapping[str, Any] | None) -> Section:
    section = Section("Results")
    if results is None:
        section.add(html.paragraph("No results yet: the run has not come to its final evaluation.", "note"))
        return section
    rows, measures = results["rows"], results["measures"]
    result = last_stage(rows)["row"]
    known = {"row", "init_from", *measures, *SECONDS}
    extra = list(dict.fromkeys(column for row in rows for column in row if column not in known))
    columns = ["row", *measures, *extra, *(name for name in SECONDS if any(name in row for row in rows))]
    section.add(html.table(rows, columns, result), html.legend_list(legend_lines(columns)))
    section.add(*(html.paragraph(warning, "warning") for warning in results.get("warnings", ())))

    if expected := expected_rows(history.recipe, last_stage(rows)):
        section.add(html.subheading("Expected and measured"), html.table(expected, list(expected[0])))
    else:
        section.add(html.paragraph("The recipe expects no scores, or is changed.", "note"))
    others = [row["row"] for row in rows if row["row"] != result]
    section.add(*_tested_in_run(run, result, others))
    return section


def _tested_in_run(run: RunDir, result: str, others: Sequence[str]) -> list[str]:
    """The table of significance tests, or a sentence that says why there is none."""
    try:
        by_row = significance_in_run(run, result, others)
    except (FileNotFoundError, ValueError) as error:
        return [html.paragraph(f"No significance tests: {error}", "note")]
    if not by_row:
        return []
    rows = [{"row": row, **{m: _difference(d) for m, d in of.items()}} for row, of in by_row.items()]
    columns = ["row", *dict.fromkeys(measure for of in by_row.values() for measure in of)]
    note = (
        f"Mean difference of {result} from the row over the test queries, p value of a paired t test with "
        f"Holm's correction for the number of rows, and queries (won/tied/lost)."
    )
    heading = html.subheading(f"{result} against the other rows")
    return [heading, html.table(rows, columns), html.legend_list([note])]


def _difference(difference: Difference) -> str:
    return f"{difference} ({difference.wins}/{difference.ties}/{difference.losses})"


def legend_lines(columns: Sequence[str]) -> list[str]:
    """The lines below a table of these columns."""
    return [line.removeprefix("- ") for line in legend(columns).splitlines()]


def _costs(history: RunHistory, results: Mapping[str, Any] | None) -> Section:
    section = Section("Time and memory")
    seconds = history.seconds(results)
    if seconds:
        total = sum(seconds.values())
        parts = sorted(seconds.items(), key=lambda item: -item[1])
        rows = [{"part": n, "seconds": round(s, 1), "share": f"{s / total:.0%}"} for n, s in parts]
        rows.append({"part": "all", "seconds": round(total, 1), "share": ""})
        section.plot("Seconds by part", "", html.table(rows, ["part", "seconds", "share"]))
        section.plot("Time by part", "", bar_plot(seconds, "seconds"))
    peaks = history.memory_bytes()
    if results and "memory_bytes" in results:
        peaks = {**peaks, "the run, all processes": results["memory_bytes"]}
    section.add(*memory_table("until the end of", peaks))
    return section


def memory_table(first: str, peaks_bytes: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A table of peaks by row and kind, in GiB, with the rows' names in the column `first`; or a note."""
    if not peaks_bytes:
        return [html.paragraph("Memory was not recorded.", "note")]
    rows = [
        {first: name, **{kind: f"{value / GIB:.2f}" for kind, value in peaks.items() if value}}
        for name, peaks in peaks_bytes.items()
    ]
    columns = [first, *dict.fromkeys(kind for peaks in peaks_bytes.values() for kind in peaks)]
    return [html.subheading("Peak memory in GiB"), html.table(rows, columns)]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
