"""Answers: the short strings that a question of an OpenQA collection asks for, and whether a text contains one.

They are matched as in DPR (Karpukhin et al. 2020, arXiv:2004.04906; `has_answers` there, in DrQA and in Pyserini's
`evaluate_dpr_retrieval`): runs of letters, digits and marks are tokens, and so is any other character that is no blank;
texts in NFD, without case.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from pyserini_ance.data.collection import Texts

ANSWERS = "answers"  # a column of queries: a JSON list of strings in each row
FIELD = "text"  # of documents: a title does not count, as in DPR


def read_answers(queries: Texts, row: int) -> list[str]:
    return json.loads(queries.columns[ANSWERS][row])


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def spaced_tokens(text: str) -> str:
    """The tokens of a decomposed text, each between two blanks: what contains an answer contains its tokens so written."""
    # Lower case comes second: it may depend on a letter's neighbours, and a token's are blanks.
    return f" {' '.join(text.translate(_SPACING).lower().split())} "


class Tokens:
    """Answers as sequences of tokens. One without tokens is passed over: it would be in every text."""

    def __init__(self, answers: Sequence[str]):
        wanted = [spaced_tokens(decomposed(answer)) for answer in answers]
        self.wanted = [(one, max(one.split(), key=len)) for one in wanted if one.strip()]

    def are_in(self, text: "Text") -> bool:
        return any(text.may_have(longest) and one in text.tokens for one, longest in self.wanted)


class Patterns:
    """Answers as regular expressions (CuratedTREC), without case; `^` and `$` are those of a line. Raises re.error for one that is none."""

    def __init__(self, answers: Sequence[str]):
        flags = re.IGNORECASE | re.MULTILINE
        self.wanted = [re.compile(decomposed(answer), flags) for answer in answers]

    def are_in(self, text: "Text") -> bool:
        return any(one.search(text.plain) for one in self.wanted)


def is_pattern(answer: str) -> bool:
    try:
        Patterns([answer])
    except re.error:
        return False
    return True


class Text:
    """A text in which answers are looked for; its tokens are made when they are needed, once."""

    def __init__(self, text: str):
        self.plain = decomposed(text)
        self._lower = self.plain.lower() if text.isascii() else None
        self._tokens: str | None = None

    def may_have(self, token: str) -> bool:
        """False only when no token of the text is `token`; quick for plain English, where most texts hold no answer."""
        return self._lower is None or token in self._lower

    @property
    def tokens(self) -> str:
        if self._tokens is None:
            self._tokens = spaced_tokens(self.plain)
        return self._tokens


def contain(
    questions: Mapping[int, Tokens | Patterns], documents: Sequence[str], question_rows: np.ndarray, document_rows: np.ndarray
) -> np.ndarray:
    """(P,) bool, of pairs by rising document: each text is prepared once. `questions`: their answers, by row."""
    found = np.zeros(len(question_rows), bool)
    rows, starts, counts = np.unique(document_rows, return_index=True, return_counts=True)
    for document, start, count in zip(rows.tolist(), starts.tolist(), counts.tolist(), strict=True):
        text, here = Text(documents[document]), slice(start, start + count)
        found[here] = [questions[question].are_in(text) for question in question_rows[here].tolist()]
    return found


class _Spacing(dict):
    """For `str.translate`: what stands for each character, filled in as characters are met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)[0]
        self[code] = " " if kind in "ZC" else character if kind in "LMN" else f" {character} "
        return self[code]


_SPACING = _Spacing()
