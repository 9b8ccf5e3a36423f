"""Reports on one run file: measures, hole rate, overlap with another run, latency, and expected scores.

Hole rate: the share of unjudged documents at the top of a ranking; measures count them as irrelevant.
Overlap: the share of a ranking's top that is also in the top of another ranking. Latency: milliseconds per
query, with high percentiles.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.trec import Qrels, Run
from pyserini_ance.evaluation.metrics import best_first, evaluate, means, per_query
from pyserini_ance.evaluation.tables import table
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.models import Recipe


def holes(qrels: Qrels, run: Run, cutoffs: Sequence[int]) -> dict[str, dict[str, float]]:
    """`Hole@k` of each cutoff, by judged query with hits: 1 - Judged@k, over all hits if there are fewer than
    k."""
    with_hits = {query: judged for query, judged in qrels.items() if run.get(query)}
    measures = {f"Hole@{cutoff}": f"Judged@{cutoff}" for cutoff in cutoffs}
    judged = per_query(with_hits or qrels, run, parse_measures(measures.values()))
    return {
        query: {name: 1 - judged[query][measure] for name, measure in measures.items()} for query in with_hits
    }


CUTOFF = 100


def overlap(
    run: Run, other: Run, queries: Iterable[str], cutoff: int = CUTOFF
) -> dict[str, dict[str, float]]:
    """`Overlap@k`, by query with hits in `run`: the share of its first k documents that are in the first k of
    `other`.

    The share is over all hits if there are fewer than k. Raises ValueError if `other` has hits for none of
    the queries.
    """
    with_hits = [query for query in queries if run.get(query)]
    if with_hits and not any(other.get(query) for query in with_hits):
        raise ValueError(
            f"the other run has none of these queries ({with_hits[0]!r}, ...); pass a run over the "
            "same queries"
        )
    return {
        query: {f"Overlap@{cutoff}": _share(run[query], other.get(query, {}), cutoff)} for query in with_hits
    }


def _share(scores: dict[str, float], others: dict[str, float], cutoff: int) -> float:
    top = best_first(scores)[:cutoff]
    return len(set(top).intersection(best_first(others)[:cutoff])) / len(top)


PERCENTILES = (50, 95, 99)
LATENCY = ("mean ms", *(f"{percentile}% ms" for percentile in PERCENTILES))


def latency(milliseconds: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles (interpolated, as numpy's) over queries, by table column."""
    values = [np.mean(milliseconds), *np.percentile(milliseconds, PERCENTILES)]
    return {name: float(value) for name, value in zip(LATENCY, values, strict=True)}


def expected_columns(recipe: Recipe, row: Mapping) -> str:
    """A table of the scores that the recipe expects next to those of the last stage's `row`; "" if it expects
    none."""
    columns = recipe.final_evaluation.columns
    expected = {
        columns.get((split, measure)): value
        for split, scores in recipe.expect.items()
        for measure, value in scores.items()
    }
    rows = [
        {
            row["row"]: column,
            "expected": value,
            "measured": row[column],
            "difference": f"{row[column] - value:+.4f}",
        }
        for column, value in expected.items()
        if column in row
    ]
    return table(rows, [row["row"], "expected", "measured", "difference"]) if rows else ""


@dataclass(frozen=True)
class RunReport:
    """Measures, hole rates at the cutoffs `holes`, and the overlap with the run `other`."""

    qrels: Qrels
    measures: Sequence[Measure]
    holes: Sequence[int]
    other: Run | None
    overlap_cutoff: int

    def totals(self, run: Run) -> dict[str, float]:
        """Each column's value over all queries."""
        return evaluate(self.qrels, run, self.measures) | means(self._holes_and_overlap(run))

    def per_query(self, run: Run) -> dict[str, dict[str, float]]:
        """Each column's value, by query."""
        measured, others = per_query(self.qrels, run, self.measures), self._holes_and_overlap(run)
        return {query: values | others.get(query, {}) for query, values in measured.items()}

    def _holes_and_overlap(self, run: Run) -> dict[str, dict[str, float]]:
        unjudged = holes(self.qrels, run, self.holes) if self.holes else {}
        shared = {} if self.other is None else overlap(run, self.other, self.qrels, self.overlap_cutoff)
        return {
            query: unjudged.get(query, {}) | shared.get(query, {})
            for query in unjudged.keys() | shared.keys()
        }
