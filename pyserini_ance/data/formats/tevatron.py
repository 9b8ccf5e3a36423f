"""Tevatron's training files, as on the hub: each line is a query with its positive and negative passages."""

from pyserini_ance.data.formats.builder import json_entry
from pyserini_ance.data.formats.lines import json_id
from pyserini_ance.data.formats.training_files import Layout, TrainingFileFormat

LAYOUT = Layout(
    "Tevatron",
    "positive_passages",
    "negative_passages",
    lambda line, index, record: json_id(line, record, "query_id"),
    lambda line, record: json_id(line, record, "docid"),
    lambda line, index, record: json_entry(line, record, ["query_id"], {"text": "query"}, ["answers"]),
    lambda line, record: json_entry(line, record, ["docid"]),
)


class Tevatron(TrainingFileFormat):
    """Tevatron's training files and, optionally, its corpus.

    A record has `query_id`, `query`, optionally `answers`, and two lists of passages {"docid", "title",
    "text"}. A line of `corpus` is such a passage.

    Source: Gao et al. 2022, arXiv:2203.05765.
    """

    kind: str = "tevatron"
    layout = LAYOUT
