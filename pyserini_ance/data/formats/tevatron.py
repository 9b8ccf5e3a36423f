"""Tevatron's training files, as on the hub: each line is a query with its positive and negative passages."""

from typing import Any

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.lines import Line, json_answers, json_id, json_text
from pyserini_ance.data.formats.training_files import Layout, TrainingFileFormat


def _question(line: Line, index: int, record: dict[str, Any]) -> Entry:
    text = {"text": json_text(line, record, "query")}
    return Entry(line, json_id(line, record, "query_id"), text, json_answers(line, record, "answers"))


def _passage(line: Line, record: dict[str, Any]) -> Entry:
    return Entry(
        line, json_id(line, record, "docid"), {key: json_text(line, record, key) for key in ("title", "text")}
    )


LAYOUT = Layout("Tevatron", "positive_passages", "negative_passages", _question, _passage)


class Tevatron(TrainingFileFormat):
    """Tevatron's training files and, optionally, its corpus.

    A record has `query_id`, `query`, optionally `answers`, and two lists of passages {"docid", "title",
    "text"}. A line of `corpus` is such a passage.

    Source: Gao et al. 2022, arXiv:2203.05765.
    """

    kind: str = "tevatron"
    layout = LAYOUT
