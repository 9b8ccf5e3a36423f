"""The report of several runs on one page: their settings, results, curves and costs next to one another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.recipe.variant import differences
from pyserini_ance.reports import report_page as html
from pyserini_ance.reports.compared_runs import read_distinct, row_named, variant_legend
from pyserini_ance.reports.report import legend_lines, memory_table
from pyserini_ance.reports.report_curves import Histories, negatives, training
from pyserini_ance.reports.report_page import Section
from pyserini_ance.reports.run_comparison import (
    compare,
    significance,
    significance_cells,
    significance_column,
    significance_legend,
)
from pyserini_ance.reports.run_history import RunHistory
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object

SHOWN_SETTINGS = 40  # of the settings in which runs differ


def comparison_report(folders: Sequence[Path], baseline: str | None = None, test: str = "t") -> str:
    """The page of several runs; `baseline` is the row that the others are tested against: by default the
    first run's.

    Raises ValueError as `compare` and `significance` do; a default baseline that cannot be tested against is
    only noted.
    """
    histories = {label: RunHistory(RunDir(f)) for label, f in zip(_labels(folders), folders, strict=True)}
    finished = [folder for folder in folders if RunDir(folder).measures.exists()]
    sections = [
        _runs(histories),
        _results(finished, baseline, test),
        training(histories),
        negatives(histories),
        _costs(histories),
    ]
    names = dict.fromkeys(history.recipe.name for history in histories.values())
    return html.page("Runs compared", f"{len(folders)} runs of {', '.join(names)}", sections)


def _labels(folders: Sequence[Path]) -> list[str]:
    """The folders' names, with as many parents as make them differ; no folder comes twice."""
    resolved = [folder.resolve() for folder in folders]
    for parts in range(1, max(len(path.parts) for path in resolved) + 1):
        labels = ["/".join(path.parts[-parts:]) for path in resolved]
        if len(set(labels)) == len(labels):
            return labels
    raise AssertionError("a folder comes twice")


def _runs(histories: Histories) -> Section:
    section = Section("What was run")
    rows = []
    for label, history in histories.items():
        environment = read_json_object(history.run.environment) or {}
        commit = environment.get("commit")
        rows.append(
            {
                "run": label,
                "recipe": history.recipe.name,
                "seed": history.recipe.seed,
                "steps": history.steps,
                "commit": commit and commit["hash"][:10],
                "state": "finished" if history.run.measures.exists() else history.run.describe(),
            }
        )
    section.add(html.table(rows, list(rows[0])))
    first, *others = histories.items()
    base = first[1].recipe.model_dump(mode="json")
    settings: dict[str, dict[str, Any]] = {}
    for label, history in others:
        for key, old, new in differences(base, history.recipe.model_dump(mode="json")):
            settings.setdefault(key, {"setting": key, first[0]: str(old)})[label] = str(new)
    shown = list(settings.values())[:SHOWN_SETTINGS]
    if shown:
        section.add(html.subheading(f"Settings that differ from {first[0]}"))
        section.add(html.table(shown, ["setting", *histories]))
    if more := len(settings) - len(shown):
        section.add(html.paragraph(f"{more} more settings differ.", "note"))
    return section


def _results(finished: Sequence[Path], baseline: str | None, test: str) -> Section:
    section = Section("Results")
    if not finished:
        section.add(html.paragraph("No run has finished.", "note"))
        return section
    finished, results = read_distinct(finished)
    rows, columns = compare(results)
    baseline = baseline and row_named(baseline, results)
    trained = [row["recipe"] for row in rows if row["runs"] is not None]
    against = baseline or (BM25 if len(trained) == 1 and rows[0]["recipe"] == BM25 else trained[0])
    has_seeds = any(row["runs"] not in (None, 1) for row in rows)
    lines = legend_lines([column for column in columns if column != "runs" or has_seeds])
    lines += variant_legend(results, (row["recipe"] for row in rows))
    section.add(html.table(rows, columns), html.legend_list(lines))
    try:
        tested = significance(finished, results, against, test)
    except (FileNotFoundError, ValueError) as error:
        if baseline:
            raise
        section.add(html.paragraph(f"No significance tests: {error}", "note"))
        return section
    cells = [{"recipe": row, **significance_cells(of, against)} for row, of in tested.items()]
    if cells:
        measures = [significance_column(measure, against) for measure in results[0]["measures"]]
        section.add(html.subheading(f"Against {against}"), html.table(cells, ["recipe", *measures]))
        section.add(html.legend_list([significance_legend(against, test)]))
    return section


def _costs(histories: Histories) -> Section:
    section = Section("Time and memory")
    seconds: dict[str, dict[str, float]] = {}
    memory: dict[str, dict[str, int]] = {}
    for label, history in histories.items():
        results = read_json_object(history.run.measures)
        by_part = history.seconds(results)
        for part, value in {**by_part, "all": sum(by_part.values())}.items():
            seconds.setdefault(part, {})[label] = value
        if results and "memory_bytes" in results:
            memory[label] = results["memory_bytes"]
    order = sorted(seconds.items(), key=lambda item: (item[0] == "all", -max(item[1].values())))
    rows = [{"part": part, **{run: f"{s:.1f}" for run, s in by_run.items()}} for part, by_run in order]
    section.add(html.subheading("Seconds by part"), html.table(rows, ["part", *histories]))
    section.add(*memory_table("run", memory))
    return section
