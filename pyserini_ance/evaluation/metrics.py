"""Measures of a run against qrels, by ir-measures: every judged query counts, and ties are broken as by
trec_eval.

Also what else a report on one run file has. Hole rate: the share of unjudged documents at the top of a
ranking; measures count them as irrelevant. Overlap: the share of a ranking's top that is also in the top of
another ranking. Latency: milliseconds per query, with high percentiles. Paired tests: do two systems differ
on the same queries by more than chance?
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import ir_measures
import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run, best_first
from pyserini_ance.recipe.evaluation_settings import parse_measures

GDEVAL_MAX_GRADE = 4  # of gdeval.pl, which computes ERR


def evaluate(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> dict[str, float]:
    """Each measure, aggregated over all judged queries, in the order of `measures`."""
    return _aggregated(per_query(qrels, run, measures), measures)


def _aggregated(values: Mapping[str, Mapping[str, float]], measures: Sequence[Measure]) -> dict[str, float]:
    aggregators = {str(measure): measure.aggregator() for measure in measures}
    for name, aggregator in aggregators.items():
        for by_measure in values.values():
            aggregator.add(by_measure[name])
    return {name: aggregator.result() for name, aggregator in aggregators.items()}


def per_query(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> dict[str, dict[str, float]]:
    """Each judged query's measures, in the order of the qrels; a query without hits scores 0.

    Raises ValueError if the run has hits, but none for a judged query: then the ids do not match; and for a
    grade that a measure does not take.
    """
    for measure in measures:
        for query, grades in qrels.items():
            check_grade(measure, max(grades.values(), default=0), f"query {query!r}")
    # Queries and documents are passed by number: gdeval.pl reads only the digits of `PLAIN-2`, and the lines
    # of a file. With the original scores, one table would mix two orders: ir-measures computes RR@10 with MS
    # MARCO's script, which breaks ties by ascending id and compares in float64, but nDCG@10 with trec_eval.
    queries = list(qrels)
    graded: Qrels = {}
    ranked: Run = {}
    for number, query in enumerate(queries):
        places = {document: str(place) for place, document in enumerate(best_first(run.get(query, {})))}
        if places:
            ranked[str(number)] = {place: float(len(places) - int(place)) for place in places.values()}
        # pytrec_eval crashes where the highest grade is below 0.
        all_below = max(qrels[query].values(), default=0) < 0
        judged = enumerate(qrels[query].items())
        graded[str(number)] = {
            places.get(id, f"x{place}"): 0 if all_below else grade for place, (id, grade) in judged
        }
    if any(run.values()) and not ranked:
        ranks, judges = (", ".join(map(repr, [*of][:3])) for of in (run, qrels))
        raise ValueError(
            f"no query of the run is judged: the run has {ranks}, the qrels have {judges}; "
            "pass the qrels of this run's queries"
        )
    values = {query: {str(measure): measure.DEFAULT for measure in measures} for query in queries}
    for metric in ir_measures.iter_calc(measures, graded, ranked) if measures else ():
        values[queries[int(metric.query_id)]][str(metric.measure)] = metric.value
    return values


def check_grade(measure: Measure, grade: int, judgments: str) -> None:
    """Raise ValueError, naming `judgments`, for a grade that is too high for a measure."""
    if grade > GDEVAL_MAX_GRADE and ir_measures.gdeval.supports(measure):
        raise ValueError(
            f"{measure} takes grades up to {GDEVAL_MAX_GRADE}, but {judgments} has grade {grade}; choose "
            "another measure, such as nDCG@10, or judgments with lower grades"
        )


def means(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each column over the queries that have it."""
    columns: dict[str, list[float]] = defaultdict(list)
    for by_column in values.values():
        for name, value in by_column.items():
            columns[name].append(value)
    return {name: fmean(column) for name, column in columns.items()}


def row_of(documents: Texts, document: str) -> int:
    """The row of a document in the collection. Raises ValueError if the collection lacks it."""
    row = documents.rows.get(document)
    if row is None:
        cure = "pass a run over this collection's documents"
        raise ValueError(f"the run has document {document!r}, which the collection lacks; {cure}")
    return row


def holes(qrels: Qrels, run: Run, cutoffs: Sequence[int]) -> dict[str, dict[str, float]]:
    """`Hole@k` of each cutoff, by judged query with hits: 1 - Judged@k, over all hits if there are fewer than
    k."""
    with_hits = {query: judged for query, judged in qrels.items() if run.get(query)}
    measures = {f"Hole@{cutoff}": f"Judged@{cutoff}" for cutoff in cutoffs}
    judged = per_query(with_hits or qrels, run, parse_measures(measures.values()))
    return {id: {name: 1 - judged[id][measure] for name, measure in measures.items()} for id in with_hits}


def overlap(run: Run, other: Run, queries: Iterable[str], cutoff: int = 100) -> dict[str, dict[str, float]]:
    """`Overlap@k`, by query with hits in `run`: the share of its first k documents that are in the first k of
    `other`.

    The share is over all hits if there are fewer than k. Raises ValueError if `other` has hits for none of
    the queries.
    """
    with_hits = [query for query in queries if run.get(query)]
    if with_hits and not any(other.get(query) for query in with_hits):
        cure = "pass a run over the same queries"
        raise ValueError(f"the other run has none of these queries ({with_hits[0]!r}, ...); {cure}")
    shared = {}
    for query in with_hits:
        top, of_other = (best_first(one.get(query, {}))[:cutoff] for one in (run, other))
        shared[query] = {f"Overlap@{cutoff}": len({*top} & {*of_other}) / len(top)}
    return shared


PERCENTILES = (50, 95, 99)
LATENCY = ("mean ms", *(f"{percentile}% ms" for percentile in PERCENTILES))


def latency(milliseconds: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles (interpolated, as numpy's) over queries, by table column."""
    values = [np.mean(milliseconds), *np.percentile(milliseconds, PERCENTILES)]
    return {name: float(value) for name, value in zip(LATENCY, values, strict=True)}


def report_on(
    qrels: Qrels,
    run: Run,
    measures: Sequence[Measure],
    hole_cutoffs: Sequence[int],
    other: Run | None,
    k: int,
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Measures, `Hole@` each cutoff, and `Overlap@k` with `other`: over all queries, and by query."""
    measured = per_query(qrels, run, measures)
    unjudged = holes(qrels, run, hole_cutoffs) if hole_cutoffs else {}
    shared = {} if other is None else overlap(run, other, qrels, k)
    totals = _aggregated(measured, measures) | means(unjudged) | means(shared)
    return totals, {
        query: values | unjudged.get(query, {}) | shared.get(query, {}) for query, values in measured.items()
    }


# Smaller differences are rounding errors, as between means of equal values over 3 and over 24 runs.
TIE = 1e-12


@dataclass(frozen=True)
class Difference:
    """A comparison of one system with a baseline over the same queries.

    `mean` is the mean difference, `p` the probability of it, or of a larger one of either sign, if the
    systems were equal (or what another test says: `equivalence`). `wins`, `ties` and `losses` count queries.
    """

    mean: float
    p: float
    wins: int
    ties: int
    losses: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f}, p {self.p:.3f}" if self.p >= 0.001 else f"{self.mean:+.3f}, p <0.001"


def t_test(differences: np.ndarray) -> float:
    """The p value of Student's t test of the queries' differences (Q,).

    Equal differences (or a single one) have no variance; their p value is the share of sign changes whose
    mean is as large.
    """
    if not differences.any():
        return 1.0
    if np.ptp(differences) < TIE:
        return 2.0 ** (1 - len(differences))
    from scipy import stats

    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def equivalence(differences: np.ndarray, margin: float) -> float:
    """The p value of two one-sided t tests: small where the mean difference (of Q) is within +-`margin`.

    Equal differences (or a single one) have no variance: 1 beyond the margin, within it 2^-Q (a sign test).
    Source: Schuirmann 1987, A comparison of the two one-sided tests procedure and the power approach.
    """
    if np.ptp(differences) < TIE:
        return 2.0 ** -len(differences) if abs(differences[0]) < margin else 1.0
    from scipy import stats

    sides = ((-margin, "greater"), (margin, "less"))
    return max(float(stats.ttest_1samp(differences, at, alternative=side).pvalue) for at, side in sides)


def differences(
    systems: Mapping[str, np.ndarray], baseline: np.ndarray, test: Callable[[np.ndarray], float] = t_test
) -> dict[str, Difference]:
    """Compare each system's values (Q,) with the baseline's values of the same queries.

    The p values of `test` are corrected for the number of systems (Holm).
    """
    by_system = {
        name: np.where(np.abs(own - baseline) < TIE, 0.0, own - baseline) for name, own in systems.items()
    }
    corrected = holm([test(values) for values in by_system.values()])
    result = {}
    for (name, values), p in zip(by_system.items(), corrected, strict=True):
        wins, losses = int((values > 0).sum()), int((values < 0).sum())
        result[name] = Difference(float(values.mean()), p, wins, len(values) - wins - losses, losses)
    return result


def holm(ps: Sequence[float]) -> list[float]:
    """p values corrected for their number: at any level, the chance of one false positive or more is at most
    the level.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    order = np.argsort(ps, kind="stable")
    steps = np.minimum(np.sort(ps) * np.arange(len(ps), 0, -1), 1.0)
    corrected = np.empty(len(ps))
    corrected[order] = np.maximum.accumulate(steps)
    return corrected.tolist()
