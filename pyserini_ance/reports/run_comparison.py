"""The table of `pyserini-ance compare`: mean and range over seeds of each recipe, and significance tests
between rows.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.trec import Qrels, read_qrels, read_run
from pyserini_ance.evaluation.metrics import per_query
from pyserini_ance.evaluation.significance import Difference, differences
from pyserini_ance.evaluation.tables import (
    BM25,
    HYBRID,
    UNTRAINED_ROWS,
    common_measures,
    last_stage,
    mean_range,
    seconds_of,
)
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)

Results = Mapping[str, Any]  # of a run, as tables.read_results returns them
ResultRow = Mapping[str, Any]
Groups = dict[str, list[tuple[int, ResultRow]]]  # by label of the table's row: (index of the run, its row)
PerQuery = dict[str, np.ndarray]  # by column, (Q,) values of the judged queries in the order of the qrels


def compare(results: Sequence[Results], only: Sequence[str] = ()) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of a table: BM25, BM25+RM3 and each untrained encoder once, then the last stage of
    each recipe, and `RECIPE hybrid` where runs have it.

    Runs of one recipe that differ by more than the seed have separate rows. A measure reads `mean
    (lowest-highest)`; `seconds` is the mean duration of training, mining and evaluation; `commit` is shown
    where it is recorded. `only` are the labels of the rows to show, none: all. Raises ValueError if measures
    or data differ, and for a label that is not a row.
    """
    measures, groups = results[0]["measures"], group_by_recipe(results, only)
    rows = [_row(name, [row for _, row in group], measures) for name, group in groups.items()]
    return rows, ["recipe", "runs", *measures, "seconds", *["commit"] * any(row["commit"] for row in rows)]


def group_by_recipe(results: Sequence[Results], only: Sequence[str] = ()) -> Groups:
    """The runs' rows that each row of the table summarizes, in the table's order; of `only`, if there is any.

    Raises ValueError as `compare` does.
    """
    groups: dict[tuple[str, str], list[tuple[int, ResultRow]]] = defaultdict(list)
    measures = common_measures(results)
    for index, result in enumerate(results):
        for row in result["rows"]:
            if row["row"] in UNTRAINED_ROWS:
                equal_groups = (
                    key
                    for key, group in groups.items()
                    if key[0] == row["row"] and have_equal_measures(group[0][1], row, measures)
                )
                new_key = (row["row"], f"{result['recipe']} [{result['config_hash'][:6]}]")
                groups[next(equal_groups, new_key)].append((index, row))
        made = {"seconds": seconds_of(result["rows"]), "commits": result["commits"]}
        last = last_stage(result["rows"])
        groups[result["recipe"], result["config_hash"]].append((index, {**last, **made}))
        for hybrid in (row for row in result["rows"] if row["row"] == HYBRID):
            key = (f"{result['recipe']} {HYBRID}", result["config_hash"])
            groups[key].append((index, {**hybrid, **made}))
    _check_same_bm25([group[0] for (name, _), group in groups.items() if name == BM25], results)
    keys = sorted(groups, key=lambda key: (key[0] not in UNTRAINED_ROWS, key))
    by_label = {_label(key, keys): groups[key] for key in keys}
    for name in only:
        if name not in by_label:
            raise ValueError(
                f"{name!r} is not a row of the table{did_you_mean(name, by_label)}; rows: "
                f"{', '.join(by_label)}"
            )
    return {name: group for name, group in by_label.items() if not only or name in only}


def _check_same_bm25(rows: Sequence[tuple[int, ResultRow]], results: Sequence[Results]) -> None:
    """Raise ValueError if BM25 has several rows: then the runs were evaluated on different data."""
    if len(rows) < 2:
        return
    measures = results[0]["measures"]
    one, other = (
        f"{', '.join(f'{name} {row[name]:.4f}' for name in measures)} in {results[index]['run']}"
        for index, row in rows[:2]
    )
    raise ValueError(
        f"BM25 measures {one}, but {other}: compare runs on the same data and test split, with the same "
        "bm25.k1, bm25.b and bm25.index"
    )


def labels(results: Sequence[Results]) -> list[str]:
    """The label of each run's row in the table."""
    keys = [(result["recipe"], result["config_hash"]) for result in results]
    return [_label(key, list(dict.fromkeys(keys))) for key in keys]


def _label(key: tuple[str, str], keys: Sequence[tuple[str, str]]) -> str:
    name, config_hash = key
    if sum(other == name for other, _ in keys) == 1:
        return name
    return f"{name} of {config_hash}" if name in UNTRAINED_ROWS else f"{name} [{config_hash[:6]}]"


def _row(name: str, group: Sequence[ResultRow], measures: Sequence[str]) -> dict[str, Any]:
    is_trained = "seconds" in group[0]
    values = {measure: mean_range([row[measure] for row in group]) for measure in measures}
    seconds = round(sum(row["seconds"] for row in group) / len(group)) if is_trained else None
    commits = dict.fromkeys(commit for row in group for commit in row.get("commits", ()))
    return {
        "recipe": name,
        "runs": len(group) if is_trained else None,
        **values,
        "seconds": seconds,
        "commit": ", ".join(commits) or None,
    }


def have_equal_measures(row: ResultRow, other: ResultRow, measures: Sequence[str]) -> bool:
    """Whether two rows have the same measures, but for rounding."""
    return all(abs(row[measure] - other[measure]) <= 1e-6 for measure in measures)


def significance(
    runs: Sequence[Path], results: Sequence[Results], baseline: str, test: str, only: Sequence[str] = ()
) -> dict[str, dict[str, Difference]]:
    """Compare each row of the table, or of `only`, with the row `baseline`, query by query, by row and by
    measure.

    A query's value is its mean over the row's runs; p values are corrected for the number of rows (Holm).
    `results` are those of `runs`. Raises ValueError for a baseline that is not a row, for runs with different
    test queries or judgments, and if there are no judgments.
    """
    groups, qrels = group_by_recipe(results), _common_qrels([RunDir(run) for run in runs])
    if baseline not in groups:
        raise ValueError(
            f"--significance {baseline!r} is not a row of the table{did_you_mean(baseline, groups)}; "
            f"rows: {', '.join(groups)}"
        )
    groups = group_by_recipe(results, only and [*only, baseline])
    systems = {
        name: _mean_per_query([(RunDir(runs[index]), row["row"]) for index, row in group], qrels)
        for name, group in groups.items()
    }
    by_row: dict[str, dict[str, Difference]] = {name: {} for name in systems if name != baseline}
    for measure in (name for name in results[0]["measures"] if name in systems[baseline]):
        values = {name: systems[name][measure] for name in by_row}
        for name, difference in differences(values, systems[baseline][measure], test).items():
            by_row[name][measure] = difference
    return by_row


def significance_in_run(run: RunDir, result: str, others: Sequence[str]) -> dict[str, dict[str, Difference]]:
    """Compare the row `result` of a run with its rows `others`, query by query, by other row and by measure.

    The differences are those of the result from the other row. Rows without a ranking are left out.
    p values are corrected for the number of rows (Holm). Raises ValueError if there are no judgments.
    """
    qrels = _common_qrels([run])
    values = {
        row: _per_query(run, row, qrels)
        for row in (result, *others)
        if all(run.ranking(row, split).exists() for split in qrels)
    }
    baseline = values.pop(result)
    by_row: dict[str, dict[str, Difference]] = {row: {} for row in values}
    for measure in baseline:
        of_measure = differences({row: values[row][measure] for row in values}, baseline[measure])
        for row, other in of_measure.items():
            by_row[row][measure] = Difference(0.0 - other.mean, other.p, other.losses, other.ties, other.wins)
    return by_row


def significance_cells(by_measure: Mapping[str, Difference], baseline: str) -> dict[str, str]:
    """The cells of one row by column: the difference, its p value, and queries won, tied and lost."""
    return {
        significance_column(measure, baseline): f"{d} ({d.wins}/{d.ties}/{d.losses})"
        for measure, d in by_measure.items()
    }


def significance_legend(baseline: str, test: str) -> str:
    """What the cells mean, in one line; `test` is a key of TESTS."""
    name = {"t": "paired t test", "permutation": "paired permutation test"}[test]
    return (
        f"against {baseline}: mean difference over the test queries, p value of a {name} with Holm's "
        f"correction for the number of rows, and queries (won/tied/lost) against {baseline}"
    )


def significance_column(measure: str, baseline: str) -> str:
    return f"{measure} against {baseline}"


def _common_qrels(runs: Sequence[RunDir]) -> dict[str, Qrels]:
    """The qrels that all runs share, by test split.

    Splits judged by answer strings have no qrels; they are skipped with a warning.
    """
    by_run = [
        {
            split: read_qrels(run.qrels(split))
            for split in run.read_final_evaluation().split
            if run.qrels(split).exists()
        }
        for run in runs
    ]
    first, qrels = runs[0], by_run[0]
    for other, other_qrels in zip(runs[1:], by_run[1:], strict=True):
        if other_qrels != qrels:
            raise ValueError(
                f"{other.folder} was evaluated on other queries or judgments than {first.folder}: "
                "compare runs on the same data and split"
            )
    if unjudged := [split for split in first.read_final_evaluation().split if split not in qrels]:
        message = (
            f"{first.folder} has no judgments of {', '.join(unjudged)}, whose passages are judged by the "
            "answers they contain"
        )
        if not qrels:
            raise ValueError(
                f"{message}: --significance needs judged queries; see pyserini-ance evaluate --answers"
            )
        log.warning("%s: --significance skips them", message)
    return qrels


def _mean_per_query(rankings: Sequence[tuple[RunDir, str]], qrels: Mapping[str, Qrels]) -> PerQuery:
    by_run = [_per_query(run, row, qrels) for run, row in rankings]
    return {measure: np.mean([values[measure] for values in by_run], axis=0) for measure in by_run[0]}


def _per_query(run: RunDir, row: str, qrels_by_split: Mapping[str, Qrels]) -> PerQuery:
    final_evaluation = run.read_final_evaluation()
    by_column: PerQuery = {}
    for split, qrels in qrels_by_split.items():
        measures = final_evaluation.measures_of(split)
        values = per_query(qrels, read_run(run.ranking(row, split)), measures)
        for measure in map(str, measures):
            by_column[final_evaluation.column(split, measure)] = np.array(
                [values[query][measure] for query in qrels]
            )
    return by_column
