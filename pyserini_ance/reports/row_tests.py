"""Tables of significance: rows of a table of runs, or of a run's results, compared query by query."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.trec import Qrels, read_run
from pyserini_ance.evaluation.metrics import differences, equivalence, per_query, t_test
from pyserini_ance.evaluation.tables import last_stage
from pyserini_ance.reports.compare import Results, Table, measured_rows
from pyserini_ance.reports.ranking_inputs import common_qrels
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)
# By label: the rankings that one row of a table averages.
Systems = Mapping[str, Sequence[tuple[RunDir, str]]]


def significance(
    results: Sequence[Results], baseline: str, only: Sequence[str] = (), within: float | None = None
) -> tuple[Table, str]:
    """Compare each row of the table, or of `only`, with the row `baseline`, query by query (`tested`).

    within: test for equivalence within this margin, instead of for a difference. Returns a table with the
    columns `recipe` and `MEASURE against BASELINE`, and the meaning of its cells. A query's value is its
    mean over the row's runs. Raises ValueError for a baseline that is not a row.
    """
    measured_rows(results, [baseline])  # raises for a baseline that is not a row
    systems = {
        str(name): [(RunDir(Path(results[run]["run"])), row) for run, row in zip(of.run, of.row, strict=True)]
        for name, of in measured_rows(results, only and [*only, baseline]).groupby("label", sort=False)
    }
    test, of_test = t_test, "a paired t test"
    if within is not None:
        test = partial(equivalence, margin=within)
        of_test = f"two one-sided paired t tests for a difference within {within:g}"
    found = tested(systems, baseline, test=test)
    note = (
        f"against {baseline}: mean difference over the test queries, p value of {of_test} (Holm over "
        f"{len(found)} rows, per measure), and queries (won/tied/lost) against {baseline}"
    )
    rows = [
        {"recipe": label} | {f"{measure} against {baseline}": cell for measure, cell in cells.items()}
        for label, cells in found.items()
    ]
    return (rows, ["recipe", *(f"{measure} against {baseline}" for measure in results[0]["measures"])]), note


def significance_in_run(run: RunDir, rows: Sequence[Mapping[str, Any]]) -> tuple[Table, str]:
    """Compare the result of a run with the other `rows` of its results table, query by query (`tested`).

    Returns a table with the columns `row` and the measures, and the meaning of its cells. Rows without a
    ranking are left out. Raises ValueError, as `tested` does, and for a run without measures.
    """
    result, test = last_stage(rows)["row"], run.read_final_evaluation()
    if not test.columns:
        raise ValueError("the run measures nothing")
    names = [
        row["row"] for row in rows if all(run.ranking(row["row"], split).exists() for split in test.split)
    ]
    found = tested({name: [(run, name)] for name in [result, *names]}, result, sign=-1.0)
    note = (
        f"Mean difference of {result} from the row over the test queries, p value of a paired t test (Holm "
        f"over {len(found)} rows, per measure), and queries (won/tied/lost)"
    )
    cells = [{"row": row, **by_measure} for row, by_measure in found.items()]
    return (cells, list(cells[0]) if cells else ["row"]), note


def tested(
    systems: Systems, baseline: str, sign: float = 1.0, test: Callable[[np.ndarray], float] = t_test
) -> dict[str, dict[str, str]]:
    """The difference of each other system from `baseline` (sign -1: of the baseline from it), by measure.

    p values are corrected for the number of systems (Holm). Raises ValueError for runs with different test
    queries or judgments, and if there are no judgments.
    """
    qrels = _common_qrels([run for rankings in systems.values() for run, _ in rankings])
    values = {}
    for label, rankings in systems.items():
        of_runs = [_per_query(run, row, qrels) for run, row in rankings]
        values[label] = {name: sign * np.mean([one[name] for one in of_runs], axis=0) for name in of_runs[0]}
    against = values.pop(baseline)
    cells: dict[str, dict[str, str]] = {label: {} for label in values}
    for measure, base in against.items():
        found = differences({label: own[measure] for label, own in values.items()}, base, test)
        for label, one in found.items():
            cells[label][measure] = f"{one} ({one.wins}/{one.ties}/{one.losses})"
    return cells


def _common_qrels(runs: Sequence[RunDir]) -> dict[str, Qrels]:
    """The qrels that all runs share, by test split; splits judged by answers have none and are skipped."""
    folder, splits = runs[0].folder, runs[0].read_final_evaluation().split
    qrels = {split: judged for split in splits if (judged := common_qrels(runs, split)) is not None}
    unjudged = ", ".join(split for split in splits if split not in qrels)
    if not qrels:
        raise ValueError(
            f"{folder} has no judgments of {unjudged}, whose passages are judged by the answers they "
            "contain: --significance needs judged queries; see pyserini-ance evaluate --answers"
        )
    if unjudged:
        log.warning("%s has no judgments of %s: --significance skips it", folder, unjudged)
    return qrels


def _per_query(run: RunDir, row: str, qrels_by_split: Mapping[str, Qrels]) -> dict[str, np.ndarray]:
    """By column of the table, (Q,) values of the judged queries in the order of the qrels."""
    final_evaluation = run.read_final_evaluation()
    by_column = {}
    for split, qrels in qrels_by_split.items():
        measures = final_evaluation.measures_of(split)
        values = per_query(qrels, read_run(run.ranking(row, split)), measures)
        for measure in map(str, measures):
            column = final_evaluation.column(split, measure)
            by_column[column] = np.array([values[query][measure] for query in qrels])
    return by_column
