"""Rankings and judgments that a caller passes as mappings, checked as files are."""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from pyserini_ance.data.formats.lines import shown
from pyserini_ance.data.trec import Qrels, Run


def run_of(scores: Mapping[str, Mapping[str, float]]) -> Run:
    """Scores by query and document. Raises ValueError, naming both, for a score that is not finite."""
    return _checked("run", scores, _score, "a finite number")


def qrels_of(grades: Mapping[str, Mapping[str, int]]) -> Qrels:
    """Grades by query and document; numpy's whole numbers are such, too.

    Raises ValueError, naming query and document, for a grade that is not a whole number.
    """
    return _checked("qrels", grades, whole, "a whole number")


def _checked[Value](
    name: str, values: Mapping[str, Mapping[str, Any]], convert: Callable[[Any], Value], expected: str
) -> dict[str, dict[str, Value]]:
    checked: dict[str, dict[str, Value]] = {}
    for query, of_query in values.items():
        if not isinstance(query, str) or not isinstance(of_query, Mapping):
            raise ValueError(
                f"{name}: {shown(query)}: {shown(of_query)}; expected the id of a query, a string, with a "
                "mapping from ids of documents to numbers"
            )
        of_checked = checked[query] = {}
        for document, value in of_query.items():
            try:
                of_checked[document] = convert(value)
            except (TypeError, ValueError):
                where = f"{name}: query {shown(query)}, document {shown(document)}"
                raise ValueError(f"{where}: {shown(value)} is not {expected}") from None
            if not isinstance(document, str):
                raise ValueError(f"{name}: query {shown(query)}: id {shown(document)} is not a string")
    return checked


def _score(value: Any) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError
    return float(value)


def whole(value: Any) -> int:
    """A grade as an int. Raises ValueError, without a message, for what is not a whole number."""
    if not isinstance(value, Integral):
        raise ValueError
    return int(value)
