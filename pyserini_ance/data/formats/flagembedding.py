"""FlagEmbedding's training files: each line is a query with the texts of its positives and negatives.

The files have no ids. The id of a query is its index in its file, from 0. The id of a document is derived
from its text (`text_id`), so that equal texts are one document across files.
"""

import hashlib
from typing import Any

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.lines import Line, json_text
from pyserini_ance.data.formats.training_files import Layout, TrainingFileFormat


def text_id(text: str) -> str:
    """The first 16 hexadecimal digits of the sha256 of the text in UTF-8; blanks count."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _question(line: Line, index: int, record: dict[str, Any]) -> Entry:
    return Entry(line, str(index), {"text": json_text(line, record, "query")})


def _passage_id(line: Line, record: dict[str, Any]) -> str:
    return text_id(json_text(line, record, "text"))


def _passage(line: Line, record: dict[str, Any]) -> Entry:
    return Entry(line, _passage_id(line, record), {"text": record["text"] or ""}, has_id=False)


LAYOUT = Layout(
    "FlagEmbedding",
    "pos",
    "neg",
    lambda line, index, record: str(index),
    _passage_id,
    _question,
    _passage,
    bare=True,
)


class FlagEmbedding(TrainingFileFormat):
    """FlagEmbedding's training files and, optionally, its candidate pool.

    A record has `query`, and the lists of texts `pos` and optionally `neg`. A line of `corpus` (the candidate
    pool) is {"text"}; the documents are those of the pool, and the listed texts that it lacks. Scores, ids
    and prompts are ignored; set prompts by `encoder.tokenization.query.template`.

    Source: Xiao et al. 2023, arXiv:2309.07597.
    """

    kind: str = "flagembedding"
    layout = LAYOUT
