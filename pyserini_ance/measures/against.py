"""A table's rows against one of them: the mean difference over the queries, and whether it is more than chance."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.measures.compare import group_by_recipe, read_results
from pyserini_ance.measures.evaluate import per_query
from pyserini_ance.measures.paired import Difference, differences
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.measure import parse
from pyserini_ance.recipe.parts import did_you_mean
from pyserini_ance.runs.rundir import RunDir

PerQuery = dict[str, np.ndarray]  # by column, (Q,) of the judged queries, by id


def against(runs: Sequence[Path], baseline: str, test: str) -> dict[str, dict[str, Difference]]:
    """By row of `compare`'s table, then by measure: its queries, each the mean over the row's runs, against those of row `baseline`.

    p values are corrected for the number of rows (Holm). Raises ValueError for a baseline that is no row, or runs whose
    queries differ.
    """
    results = [read_results(run) for run in runs]
    groups = group_by_recipe(results)
    if baseline not in groups:
        raise ValueError(f"--against {baseline!r} is no row of the table{did_you_mean(baseline, groups)}; rows: {', '.join(groups)}")
    systems = {name: _mean_per_query([RunDir(run) for run in runs], group, results[0]["measures"]) for name, group in groups.items()}
    found: dict[str, dict[str, Difference]] = {name: {} for name in systems if name != baseline}
    for measure in results[0]["measures"]:
        tested = differences({name: systems[name][measure] for name in found}, systems[baseline][measure], test)
        for name, difference in tested.items():
            found[name][measure] = difference
    return found


def cells(found: dict[str, Difference], baseline: str) -> dict[str, str]:
    """Of one row, by column: the difference, p, and queries won, tied and lost."""
    return {column(measure, baseline): f"{d} ({d.wins}/{d.ties}/{d.losses})" for measure, d in found.items()}


def column(measure: str, baseline: str) -> str:
    return f"{measure} against {baseline}"


def _mean_per_query(runs: Sequence[RunDir], group: Sequence[tuple[int, Mapping]], measures: Sequence[str]) -> PerQuery:
    of_runs = [_per_query(runs[place], row["row"]) for place, row in group]
    return {measure: np.mean([of_run[measure] for of_run in of_runs], axis=0) for measure in measures}


def _per_query(run: RunDir, row: str) -> PerQuery:
    test, found = load(run.recipe).recipe.test, {}
    for split in test.split:
        values = per_query(read_qrels(run.qrels(split)), read_run(run.ranking(row, split)), parse(test.measures))
        for measure in map(str, parse(test.measures)):
            found[test.column(split, measure)] = np.array([values[query][measure] for query in sorted(values)])
    return found
