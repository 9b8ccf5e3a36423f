"""A table's rows against one of them: the mean difference over the queries, and whether it is more than chance."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pyserini_ance.data.trec import Qrels, read_qrels, read_run
from pyserini_ance.measures.compare import group_by_recipe
from pyserini_ance.measures.evaluate import per_query
from pyserini_ance.measures.paired import Difference, differences
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.parts import did_you_mean
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)
PerQuery = dict[str, np.ndarray]  # by column, (Q,) of the judged queries in the order of the qrels


def against(runs: Sequence[Path], results: Sequence[Mapping], baseline: str, test: str) -> dict[str, dict[str, Difference]]:
    """By row of `compare`'s table, then by measure: its queries, each the mean over the row's runs, against those of row `baseline`.

    `results` are those of `runs`; p values are corrected for the number of rows (Holm). Raises ValueError for a baseline that is no row,
    for runs with other test queries or judgments, and where there are none.
    """
    groups, judged = group_by_recipe(results), _judgments([RunDir(run) for run in runs])
    if baseline not in groups:
        raise ValueError(f"--against {baseline!r} is no row of the table{did_you_mean(baseline, groups)}; rows: {', '.join(groups)}")
    systems = {name: _mean_per_query([(RunDir(runs[place]), row["row"]) for place, row in group], judged) for name, group in groups.items()}
    found: dict[str, dict[str, Difference]] = {name: {} for name in systems if name != baseline}
    for measure in (name for name in results[0]["measures"] if name in systems[baseline]):
        tested = differences({name: systems[name][measure] for name in found}, systems[baseline][measure], test)
        for name, difference in tested.items():
            found[name][measure] = difference
    return found


def cells(found: dict[str, Difference], baseline: str) -> dict[str, str]:
    """Of one row, by column: the difference, p, and queries won, tied and lost."""
    return {column(measure, baseline): f"{d} ({d.wins}/{d.ties}/{d.losses})" for measure, d in found.items()}


def column(measure: str, baseline: str) -> str:
    return f"{measure} against {baseline}"


def _judgments(runs: Sequence[RunDir]) -> dict[str, Qrels]:
    """By test split, those of all the runs. A split that is judged by the answers that passages hold has none, which is said."""
    of_runs = ({s: read_qrels(run.qrels(s)) for s in load(run.recipe).recipe.test.split if run.qrels(s).exists()} for run in runs)
    (run, judged), *others = zip(runs, of_runs, strict=True)
    for other, theirs in others:
        if theirs != judged:
            raise ValueError(f"{other.folder} was tested on other queries or judgments than {run.folder}: compare runs on the same data and split")
    if unjudged := [split for split in load(run.recipe).recipe.test.split if split not in judged]:
        told = f"{run.folder} has no judgments of {', '.join(unjudged)}, whose passages are judged by the answers they hold"
        if not judged:
            raise ValueError(f"{told}: --against tests by judged queries; leave it out, and look at them by python -m pyserini_ance.coverage")
        log.warning("%s: --against leaves them out", told)
    return judged


def _mean_per_query(rankings: Sequence[tuple[RunDir, str]], judged: Mapping[str, Qrels]) -> PerQuery:
    of_runs = [_per_query(run, row, judged) for run, row in rankings]
    return {measure: np.mean([of_run[measure] for of_run in of_runs], axis=0) for measure in of_runs[0]}


def _per_query(run: RunDir, row: str, judged: Mapping[str, Qrels]) -> PerQuery:
    test, found = load(run.recipe).recipe.test, {}
    for split, qrels in judged.items():
        measures = test.measures_of(split)
        values = per_query(qrels, read_run(run.ranking(row, split)), measures)
        for measure in map(str, measures):
            found[test.column(split, measure)] = np.array([values[query][measure] for query in qrels])
    return found
