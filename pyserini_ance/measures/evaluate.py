"""Measures of a run against qrels: ir-measures, with every judged query counted and ties broken as trec_eval does."""

import ast
import difflib
import re
from collections.abc import Iterable, Sequence

import ir_measures
import numpy as np
from ir_measures import Measure

from pyserini_ance.data.trec import Qrels, Run

EXAMPLES = "nDCG@10, RR@10, R@100, AP, P@5, Success@20, RR(rel=2)@10"
SPELLING = re.compile(r"(?P<name>\w+)(?:\((?P<parameters>.*)\))?(?:@(?P<cutoff>[1-9]\d*|\d+\.\d+))?")


def parse(names: Iterable[str]) -> list[Measure]:
    """The measures of these names, ready to compute. Raises ValueError for one that is unknown, misspelt or not installed."""
    return [_parse(name.strip()) for name in names]


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


def _parse(text: str) -> Measure:
    # Not ir_measures.parse_measure: in 0.4.3 it uses ast.Num, which Python 3.14 no longer has.
    spelt = SPELLING.fullmatch(text)
    if not spelt:
        raise ValueError(f"measure {text!r} is not of the form Name@cutoff or Name(key=value)@cutoff, for example {EXAMPLES}")
    registered = ir_measures.measures.registry.get(spelt["name"])
    if registered is None:
        raise ValueError(f"unknown measure {text!r}{_did_you_mean(spelt['name'])}; examples: {EXAMPLES}")
    parameters = _parameters(spelt["parameters"] or "", text)
    if spelt["cutoff"]:
        parameters[registered.AT_PARAM] = ast.literal_eval(spelt["cutoff"])
    return _computable(registered, parameters, text)


def _parameters(text: str, measure: str) -> dict:
    try:
        match ast.parse(f"f({text})", mode="eval").body:
            case ast.Call(args=[], keywords=keywords):
                return {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords}
    except (SyntaxError, ValueError):
        pass
    raise ValueError(f"measure {measure!r}: {text!r} is not a list of key=value, for example RR(rel=2)@10")


def _computable(registered: Measure, parameters: dict, text: str) -> Measure:
    known = registered.SUPPORTED_PARAMS
    fits = parameters.keys() <= known.keys() and all(
        known[key].validate(parameters[key]) if key in parameters else not known[key].required for key in known
    )
    if not fits:
        listed = ", ".join(f"{key} (required)" if known[key].required else key for key in known)
        raise ValueError(f"measure {text!r} has a wrong or missing parameter; it takes {listed}; examples: {EXAMPLES}")
    measure = registered(**parameters)
    try:
        ir_measures.evaluator([measure], {})
    except ValueError as error:
        raise ValueError(f"measure {text!r} cannot be computed here: {error}") from None
    return measure


def _did_you_mean(name: str) -> str:
    by_lower_case = {known.lower(): known for known in reversed(ir_measures.measures.registry)}  # aliases come last
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f" (did you mean {by_lower_case[near[0]]!r}?)" if near else ""


def _ranked(scores: dict[str, float]) -> dict[str, float]:
    """The same ranking with distinct scores n, n-1, ..., 1, ordered as trec_eval does: float32, ties by descending id.

    Left alone, one table would mix two orders: for RR@10 ir-measures asks MS MARCO's script, which breaks ties by
    ascending id and in float64, and for nDCG@10 trec_eval.
    """
    rounded = np.fromiter(scores.values(), np.float32, len(scores)).tolist()
    order = sorted(zip(rounded, scores, strict=True), reverse=True)
    return {document: float(len(order) - rank) for rank, (_, document) in enumerate(order)}


def _first(queries: Iterable[str]) -> str:
    return ", ".join(map(repr, list(queries)[:3]))
