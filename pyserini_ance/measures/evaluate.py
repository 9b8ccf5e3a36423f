"""Measures of a run against qrels: ir-measures, with every judged query counted and ties broken as trec_eval does."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import ir_measures
import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run


def evaluate(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> dict[str, float]:
    """Each measure over all judged queries, in the order asked for."""
    values = per_query(qrels, run, measures)
    aggregators = {str(measure): measure.aggregator() for measure in measures}
    for name, aggregator in aggregators.items():
        for of_query in values.values():
            aggregator.add(of_query[name])
    return {name: aggregator.result() for name, aggregator in aggregators.items()}


def per_query(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> dict[str, dict[str, float]]:
    """Each judged query's measures, in the order of the qrels; a query without any hit scores 0.

    Raises ValueError when there are hits but none for a judged query: then the ids do not match.
    """
    # Queries go by number: for ERR ir-measures asks gdeval.pl, which reads only numbers and takes `PLAIN-2` for 2.
    queries = list(qrels)
    graded = {str(number): qrels[query] for number, query in enumerate(queries)}
    ranked = {str(number): _ranked(run[query]) for number, query in enumerate(queries) if run.get(query)}
    if any(run.values()) and not ranked:
        raise ValueError(
            f"no query of the run is judged: the run has {_first(run)}, the qrels have {_first(qrels)}; "
            "name the qrels that belong to this run"
        )
    values = {query: {str(measure): measure.DEFAULT for measure in measures} for query in queries}
    for metric in ir_measures.iter_calc(measures, graded, ranked):
        values[queries[int(metric.query_id)]][str(metric.measure)] = metric.value
    return values


def means(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Of each column, over the queries that have it."""
    columns: dict[str, list[float]] = defaultdict(list)
    for of_query in values.values():
        for name, value in of_query.items():
            columns[name].append(value)
    return {name: fmean(found) for name, found in columns.items()}


def best_first(scores: Mapping[str, float]) -> list[str]:
    """The documents of a query, ordered as trec_eval does: by their scores in float32, ties by descending id."""
    rounded = np.fromiter(scores.values(), np.float32, len(scores)).tolist()
    return [document for _, document in sorted(zip(rounded, scores, strict=True), reverse=True)]


def row_of(documents: Texts, document: str) -> int:
    """Raises ValueError when the collection lacks a document of a run."""
    row = documents.rows.get(document)
    if row is None:
        raise ValueError(f"the run has document {document!r}, which the collection lacks; name a run over the documents of this collection")
    return row


def _ranked(scores: dict[str, float]) -> dict[str, float]:
    """The same ranking with distinct scores n, n-1, ..., 1.

    Left alone, one table would mix two orders: for RR@10 ir-measures asks MS MARCO's script, which breaks ties by
    ascending id and in float64, and for nDCG@10 trec_eval.
    """
    return {document: float(len(scores) - rank) for rank, document in enumerate(best_first(scores))}


def _first(queries: Iterable[str]) -> str:
    return ", ".join(map(repr, list(queries)[:3]))
