"""FlagEmbedding's training files: a query a line, with the texts of its positives and negatives.

There are no ids: a query's is its place in its file, from 0, and a document's is made from its text (`text_id`), so that equal
texts are one document, in whichever file they stand.
"""

import hashlib
from typing import Any

from pyserini_ance.data.formats.contexts import Layout, ListingFormat
from pyserini_ance.data.formats.format import Entry
from pyserini_ance.data.formats.lines import Line, is_writable, json_text, shown


def text_id(text: str) -> str:
    """The first 16 hexadecimal digits of the sha256 of the text in UTF-8, blanks and all."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _question(line: Line, place: int, record: dict[str, Any]) -> Entry:
    return Entry(line, str(place), {"text": json_text(line, record, "query")})


def _passage(line: Line, record: dict[str, Any]) -> Entry:
    text = json_text(line, record, "text")
    if not is_writable(text):
        raise line.error(f"a text that holds a NUL character or half a surrogate pair: {shown(text)}", "text for UTF-8", "remove the character")
    return Entry(line, text_id(text), {"text": text})


LAYOUT = Layout("FlagEmbedding", "pos", "neg", _question, _passage, bare=True)


class FlagEmbedding(ListingFormat):
    """A record has `query`, `pos` and perhaps `neg`, lists of texts; a line of `corpus` (its candidate pool) is {"text"}.

    Scores, ids and prompts are passed over: a prompt is said by `encoder.tokenization.query.template`. Xiao et al. 2023,
    arXiv:2309.07597.
    """

    kind: str = "flagembedding"
    layout = LAYOUT
