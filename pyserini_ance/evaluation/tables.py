"""Results tables: what finished runs recorded in `measures.json`, and tables as Markdown with a
legend: a line for each column whose name does not explain itself."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.components import similar_name
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json

BM25, BM25_RM3, UNTRAINED = UNTRAINED_ROWS = ("bm25", "bm25+rm3", "untrained")
HYBRID = "hybrid"  # the row of BM25 fused with the run's result
BYTES = "bytes a document"
SECONDS = ("train seconds", "refresh seconds", "test seconds")
COSTS = (BYTES, *SECONDS)


def common_measures(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The measures of runs, as `read_results` returns them. Raises ValueError if they differ, or if runs of
    one recipe, whose mean would be taken, have read other data."""
    measures: list[str] = results[0]["measures"]
    firsts: dict[str, Mapping[str, Any]] = {}
    for result in (one for one in results if one.get("data")):
        first = firsts.setdefault(result["config_hash"], result)
        if result["data"] != first["data"]:
            problem = f"{first['run']} and {result['run']} have one recipe, but read other data"
            raise ValueError(f"{problem}; compare runs on the same documents, queries and judgments")
    for result in results:
        if result["measures"] != measures:
            raise ValueError(
                f"{result['recipe']} was measured by {result['measures']}, {results[0]['recipe']} by "
                f"{measures}: compare runs with the same measures"
            )
    return measures


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A Markdown table with aligned columns; numbers are flush right.

    Floats have 4 decimals, in columns `... seconds` and `... ms` 1; missing values are `-`.
    """
    cells = [[cell_text(row.get(column), column).replace("|", "\\|") for column in columns] for row in rows]
    widths = [max(map(len, texts)) for texts in zip(columns, *cells, strict=True)]
    right = [any(isinstance(row.get(column), int | float) for row in rows) for column in columns]
    rule = [f"{'-' * (n - 1)}:" if flush else "-" * n for n, flush in zip(widths, right, strict=True)]
    lines = []
    for texts in (columns, rule, *cells):
        sides = zip(texts, widths, right, strict=True)
        padded = [text.rjust(width) if flush else text.ljust(width) for text, width, flush in sides]
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines)


def cell_text(value: Any, column: str) -> str:
    """A value as tables show it, before any escaping."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}" if column.endswith(("seconds", " ms")) else f"{value:.4f}"
    return str(value)


def read_results(run: Path) -> dict[str, Any]:
    """A run's `measures.json`, with its folder as `run`, the digest of its `data` and the `commits` of the
    code that made it.

    There is one of the run's start and of each resume, where recorded; `a1b2c3d+` if files of the package had
    changed.

    Raises FileNotFoundError if the run has not finished, RuntimeError if the file is damaged or if another
    version wrote the run directory.
    """
    files = RunDir.find(run)
    path = files.measures
    if not run.is_dir():
        cure = "pass a run directory, as `train` writes it to runs/NAME"
        raise FileNotFoundError(f"{run}: no such folder{similar_name(run)}; {cure}")
    if not path.exists():
        cure = "Continue it with --resume, or remove it from the command."
        raise FileNotFoundError(f"{path} is missing: {run} is not a finished run. {cure}")
    files.trainer.read()
    environments = [read_json(files.environment)] if files.environment.exists() else []
    environments += [record["environment"] for record in RunLog(files, writes=False).decisions("resume")]
    found = (environment.get("commit") for environment in environments)
    commits = dict.fromkeys(f"{one['hash'][:7]}{'+' * one['changed']}" for one in found if one)
    data = environments[0].get("data", {}).get("digest") if environments else None
    return {"run": str(files.folder), **files.read_measures(), "commits": list(commits), "data": data}


def last_stage(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The row of the run's result.

    Its rows by other indexes (`final_evaluation.indexes`) have no training seconds.
    """
    return [row for row in rows if "train seconds" in row][-1]


def expected_rows(recipe: Recipe, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The scores that the recipe expects, each beside that of the last stage's `row`; none for a variant."""
    columns = recipe.final_evaluation.columns
    return [
        {
            row["row"]: column,
            "expected": value,
            "measured": row[column],
            "difference": f"{row[column] - value:+.4f}",
        }
        for split, scores in recipe.expect.items()
        for name, value in scores.items()
        if (column := columns.get((split, name), "")) in row
    ]


def seconds_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """The duration of all stages of a run: training, mining and final evaluation."""
    return sum(row.get(key) or 0.0 for row in rows if "train seconds" in row for key in SECONDS)


def mean_range(values: Sequence[float]) -> str:
    """`mean (lowest-highest)`; the mean alone if all values are equal."""
    mean = f"{sum(values) / len(values):.3f}"
    return mean if min(values) == max(values) else f"{mean} ({min(values):.3f}-{max(values):.3f})"


# By the columns' pattern. A pattern has one meaning in all tables. Measures have the names of ir-measures and
# no line, unless they are our own.
LEGENDS = {
    "bytes a document": "bytes a document: of its vectors, as the index of the row stores them",
    "train seconds": "train seconds: optimizer steps",
    "refresh seconds": "refresh seconds: checkpoints, encoding, mining, dev evaluation",
    "test seconds": "test seconds: encoding and ranking for the final evaluation",
    "seconds": "seconds: steps, refreshes, dev and final evaluation of all stages",
    "runs": "runs: more than one are the seeds of a row, as mean (lowest-highest)",
    "dev best": "dev best: the best dev measure during training",
    r".* gain": "gain: of the mean over the baseline's mean, in percent",
    "forgotten": "forgotten, learnt: shares of the training queries whose RR@100 is lower, higher at `until` "
    "than at `since`",
    r"train RR@\d+": "train RR@100: mean over the training queries at `until`",
    r"(.* )?Hole@\d+": "Hole@k: share of the first k documents that are not judged",
    r"(.* )?Overlap@\d+": "Overlap@k: share of the first k documents that the other run has in its first k",
    r"(.* )?queries .*": "queries ...: each relevant document searches the queries (query retrieval)",
    r"(.*)-rerank .*": "SPLIT-rerank: a given ranking of the split, in the order of the model's scores",
    r"(.* )?mean ms": "ms: milliseconds per query, mean and percentiles",
    "candidates per query": "candidates per query: found and not filtered out, mean (lowest-highest)",
    "negatives per query": "negatives per query: drawn from the candidates, mean (lowest-highest)",
    "filled at random": "filled at random: queries with fewer candidates than negatives",
    "candidates removed": "candidates removed: counted for the first filter that removes them; promoted ones "
    "become positives",
    "median tokens": "tokens: of all texts together, and the median of a text, before cutting",
    "drawn queries": "drawn queries: in all steps; repeats in a row (`repeats_per_query`) count once",
    "dev evaluations": "refreshes, dev evaluations: how many; a refresh encodes and mines",
    "documents to encode": "documents to encode: their passages, for all refreshes and dev evaluations",
    r"(.* )?EM": "EM, F1: answers that match a gold answer exactly; overlap of their words with it",
}


def legend(columns: Iterable[str], *more: str) -> str:
    """The lines of the columns and `more`; "" if there are none."""
    columns = list(columns)
    lines = [text for pattern, text in LEGENDS.items() if any(re.fullmatch(pattern, one) for one in columns)]
    return "\n".join(f"- {line}" for line in [*lines, *more])


def table_with_legend(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *more: str) -> str:
    """A Markdown table and, below it, the legend of its columns and the lines `more`."""
    shown = [
        column
        for column in columns
        if any(row.get(column) not in ((None, 1) if column == "runs" else (None,)) for row in rows)
    ]
    return "\n\n".join(filter(None, [table(rows, columns), legend(shown, *more)]))
