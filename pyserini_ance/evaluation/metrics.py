"""Measures of a run against qrels, by ir-measures: every judged query counts, and ties are broken as by
trec_eval."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import ir_measures
import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run


def evaluate(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> dict[str, float]:
    """Each measure, aggregated over all judged queries, in the order of `measures`."""
    values = per_query(qrels, run, measures)
    aggregators = {str(measure): measure.aggregator() for measure in measures}
    for name, aggregator in aggregators.items():
        for by_measure in values.values():
            aggregator.add(by_measure[name])
    return {name: aggregator.result() for name, aggregator in aggregators.items()}


def per_query(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> dict[str, dict[str, float]]:
    """Each judged query's measures, in the order of the qrels; a query without hits scores 0.

    Raises ValueError if the run has hits, but none for a judged query: then the ids do not match.
    """
    # Queries are passed by number: ir-measures computes ERR with gdeval.pl, which reads only the digits of
    # `PLAIN-2`.
    queries = list(qrels)
    graded = {str(number): qrels[query] for number, query in enumerate(queries)}
    ranked = {str(number): _ranked(run[query]) for number, query in enumerate(queries) if run.get(query)}
    if any(run.values()) and not ranked:
        raise ValueError(
            f"no query of the run is judged: the run has {_first(run)}, the qrels have {_first(qrels)}; "
            "pass the qrels of this run's queries"
        )
    values = {query: {str(measure): measure.DEFAULT for measure in measures} for query in queries}
    for metric in ir_measures.iter_calc(measures, graded, ranked):
        values[queries[int(metric.query_id)]][str(metric.measure)] = metric.value
    return values


def means(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each column over the queries that have it."""
    columns: dict[str, list[float]] = defaultdict(list)
    for by_column in values.values():
        for name, value in by_column.items():
            columns[name].append(value)
    return {name: fmean(column) for name, column in columns.items()}


def best_first(scores: Mapping[str, float]) -> list[str]:
    """The documents of a query in trec_eval's order: by score in float32, ties by descending id."""
    rounded = np.fromiter(scores.values(), np.float32, len(scores)).tolist()
    return [document for _, document in sorted(zip(rounded, scores, strict=True), reverse=True)]


def row_of(documents: Texts, document: str) -> int:
    """The row of a document in the collection. Raises ValueError if the collection lacks it."""
    row = documents.rows.get(document)
    if row is None:
        raise ValueError(
            f"the run has document {document!r}, which the collection lacks; pass a run over this "
            "collection's documents"
        )
    return row


def _ranked(scores: dict[str, float]) -> dict[str, float]:
    """The same ranking with distinct scores n, n-1, ..., 1.

    With the original scores, one table would mix two orders: ir-measures computes RR@10 with MS MARCO's
    script, which breaks ties by ascending id and compares in float64, but nDCG@10 with trec_eval.
    """
    return {document: float(len(scores) - rank) for rank, document in enumerate(best_first(scores))}


def _first(queries: Iterable[str]) -> str:
    return ", ".join(map(repr, list(queries)[:3]))
