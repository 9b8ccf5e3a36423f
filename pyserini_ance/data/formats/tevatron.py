"""Tevatron's training files, as on the hub: a query a line, with its positive and negative passages."""

from typing import Any

from pyserini_ance.data.formats.contexts import Layout, ListingFormat
from pyserini_ance.data.formats.format import Entry
from pyserini_ance.data.formats.lines import Line, json_answers, json_id, json_text


def _question(line: Line, place: int, record: dict[str, Any]) -> Entry:
    text = {"text": json_text(line, record, "query")}
    return Entry(line, json_id(line, record, "query_id"), text, json_answers(line, record, "answers"))


def _passage(line: Line, record: dict[str, Any]) -> Entry:
    return Entry(line, json_id(line, record, "docid"), {key: json_text(line, record, key) for key in ("title", "text")})


LAYOUT = Layout("Tevatron", "positive_passages", "negative_passages", _question, _passage)


class Tevatron(ListingFormat):
    """A record has `query_id`, `query`, perhaps `answers`, and two lists of {"docid", "title", "text"}, which are also what a
    line of `corpus` is. Gao et al. 2022, arXiv:2203.05765.
    """

    kind: str = "tevatron"
    layout = LAYOUT
