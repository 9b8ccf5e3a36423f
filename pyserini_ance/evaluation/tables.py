"""Results tables: what finished runs recorded in `measures.json`, and tables as Markdown and CSV."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.load import read_yaml
from pyserini_ance.runs.provenance import config_hash_of
from pyserini_ance.runs.rundir import RunDir, RunLog
from pyserini_ance.storage.files import read_json

BM25, BM25_RM3, UNTRAINED = UNTRAINED_ROWS = ("bm25", "bm25+rm3", "untrained")
HYBRID = "hybrid"  # the row of BM25 fused with the run's result
SECONDS = ("train seconds", "refresh seconds", "test seconds")
SplitMeasure = tuple[str, str]  # split, measure


DEPTHS = ("", "*/", "*/*/", "*/*/*/")  # the folder is a run, holds runs, or holds grids


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A Markdown table with aligned columns; numbers are flush right.

    Floats have 4 decimals, in columns `... seconds` and `... ms` 1; missing values are `-`.
    """
    cells = [[_text(row.get(column), column) for column in columns] for row in rows]
    widths = [max(map(len, texts)) for texts in zip(columns, *cells, strict=True)]
    right = [any(isinstance(row.get(column), int | float) for row in rows) for column in columns]
    rule = [
        f"{'-' * (width - 1)}:" if flush else "-" * width for width, flush in zip(widths, right, strict=True)
    ]
    return "\n".join(_line(line, widths, right) for line in (columns, rule, *cells))


def as_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """The table as CSV, with every digit."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = zip(texts, widths, right, strict=True)
    return (
        f"| {' | '.join(text.rjust(width) if flush else text.ljust(width) for text, width, flush in cells)} |"
    )


def _text(value: Any, column: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}" if column.endswith(("seconds", " ms")) else f"{value:.4f}"
    return str(value).replace("|", "\\|")


def read_results(run: Path) -> dict[str, Any]:
    """A run's `measures.json`, with the `commits` of the code that made it.

    Raises FileNotFoundError if the run has not finished, RuntimeError if the file is damaged or if another
    version wrote the run directory.
    """
    path = RunDir(run).measures
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: {run} is not a finished run. Continue it with --resume, or remove it from "
            "the command."
        )
    RunDir(run).trainer.read()
    results = {**read_json(path), "commits": _commits(RunDir(run))}
    if recorded := results.get("config_hash"):
        results["config_hash"] = config_hash_of(RunDir(run), recorded)
    return results


def _commits(run: RunDir) -> list[str]:
    """The commits at the run's start and at each resume, where recorded; `a1b2c3d+` if files of the package
    had changed."""
    environments = [read_json(run.environment)] if run.environment.exists() else []
    environments += [record["environment"] for record in RunLog(run, writes=False).decisions("resume")]
    commits = (environment.get("commit") for environment in environments)
    return list(
        dict.fromkeys(f"{commit['hash'][:7]}{'+' * commit['changed']}" for commit in commits if commit)
    )


def last_stage(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The row of the run's result.

    Its rows by other indexes (`final_evaluation.indexes`) have no training seconds.
    """
    return [row for row in rows if "train seconds" in row][-1]


def seconds_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """The duration of all stages of a run: training, mining and final evaluation."""
    return sum(row.get(key) or 0.0 for row in rows if "train seconds" in row for key in SECONDS)


def mean_range(values: Sequence[float]) -> str:
    """`mean (lowest-highest)`; the mean alone if all values are equal."""
    mean = f"{sum(values) / len(values):.3f}"
    return mean if min(values) == max(values) else f"{mean} ({min(values):.3f}-{max(values):.3f})"


@dataclass(frozen=True)
class MeasuredRow:
    """One row of a run's results table, with its scores in `figures`.

    For a row without training, `recipe` is the row's name and `config_hash` is empty; runs of one recipe that
    share `config_hash` differ by the seed alone.
    """

    recipe: str
    config_hash: str
    run: str
    figures: dict[SplitMeasure, float]


def read_measured(run: Path, name: str) -> list[MeasuredRow]:
    """The rows of a finished run, called `name`: those without training, and that of the last stage.

    Raises ValueError if its recipe or its `measures.json` is of another version.
    """
    results, final_evaluation = read_results(run), RunDir(run).read_recipe().final_evaluation
    try:
        rows = [(row["row"], "", row) for row in results["rows"] if row["row"] in UNTRAINED_ROWS]
        rows.append((results["recipe"], results["config_hash"], last_stage(results["rows"])))
    except KeyError as error:
        raise ValueError(
            f"{RunDir(run).measures} has no {error}, which this version writes; evaluate again, or "
            "remove the run"
        ) from None
    columns = final_evaluation.columns.items()
    return [
        MeasuredRow(recipe, config_hash, name, {key: row[column] for key, column in columns if column in row})
        for recipe, config_hash, row in rows
    ]


def find_runs(folder: Path, selects: Callable[[str], bool]) -> tuple[list[Path], list[Path]]:
    """The run directories whose recipe's name `selects` accepts: the finished ones, and the others."""
    folders = [path.parent for depth in DEPTHS for path in sorted(folder.glob(f"{depth}recipe.yaml"))]
    runs = [run for run in folders if RunDir(run).state.exists() and selects(_recipe_name(run))]
    finished = [run for run in runs if RunDir(run).measures.exists()]
    return finished, [run for run in runs if run not in finished]


def _recipe_name(run: Path) -> str:
    """The recipe's name, without validating the recipe, which may be of other data and of another version."""
    recipe = read_yaml(RunDir(run).recipe.read_bytes(), str(RunDir(run).recipe))
    return str(recipe.get("name", "")) if isinstance(recipe, dict) else ""


def group_alike(measured: Sequence[MeasuredRow]) -> list[list[MeasuredRow]]:
    """Group the rows that share one row of the table.

    Trained rows are grouped if they differ by the seed alone, rows without training if their common scores
    agree.
    """
    groups: list[list[MeasuredRow]] = []
    for row in measured:
        matches = (
            group
            for group in groups
            if row.config_hash == group[0].config_hash and (row.config_hash or _agree(row, group))
        )
        group = next(matches, None)
        if group is None:
            groups.append(group := [])
        group.append(row)
    return groups


def _agree(row: MeasuredRow, group: Sequence[MeasuredRow]) -> bool:
    return all(
        abs(value - other.figures[key]) <= 1e-6
        for other in group
        for key, value in row.figures.items()
        if key in other.figures
    )


def values_by_column(group: Sequence[MeasuredRow]) -> dict[SplitMeasure, list[float]]:
    """By split and measure, the values of the rows that have it."""
    keys = dict.fromkeys(key for row in group for key in row.figures)
    return {key: [row.figures[key] for row in group if key in row.figures] for key in keys}
