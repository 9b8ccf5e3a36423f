"""Answer matching: whether a text contains one of the short answers to an open-domain question.

The rules are those of DPR (Karpukhin et al. 2020, arXiv:2004.04906; `has_answers` there, in DrQA and in
Pyserini's `evaluate_dpr_retrieval`): a token is a run of letters, digits and marks, or any other character
that is not blank. Texts are compared in NFD, ignoring case.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import regex

from pyserini_ance.data.collection import Texts

# As in DPR: `regex` knows scripts that Python's own table lacks.
TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{L}\p{N}\p{M}\p{Z}\p{C}]")
ANSWERS = "answers"  # a column of queries: a JSON list of strings in each row
SECONDS = 1  # for a pattern and a text; 20 us is usual
FIELD = "text"  # the field of documents that is searched; a title does not count, as in DPR


def read_answers(queries: Texts, row: int) -> list[str]:
    return json.loads(queries.columns[ANSWERS][row])


def searched_texts(documents: Texts) -> Sequence[str]:
    """The texts that answers are searched in. Raises ValueError if documents have none."""
    if FIELD not in documents.columns:
        problem = f"answers are searched in the field {FIELD!r}, but documents have "
        raise ValueError(f"{problem}{', '.join(documents.columns)}; name a field so, or use no answers")
    return documents.columns[FIELD]


def decomposed(text: str) -> str:
    """The text in Unicode's NFD form."""
    return unicodedata.normalize("NFD", text)


def spaced_tokens(text: str) -> str:
    """The tokens of a decomposed text, each between two blanks.

    A text contains an answer if its spaced tokens contain those of the answer.
    """
    # Lower-case after spacing: the lower case of a letter may depend on its neighbours, which are a token's
    # own then.
    return f" {' '.join(TOKEN.findall(text)).lower()} "


class Tokens:
    """Answers as sequences of tokens.

    An answer without tokens is ignored, since every text would contain it (in Pyserini every text does).
    """

    def __init__(self, answers: Sequence[str]):
        self.skipped: dict[str, str] = {}  # as of Patterns: every sequence of tokens can be used
        spaced = [spaced_tokens(decomposed(answer)) for answer in answers]
        self.answers = [(answer, max(answer.split(), key=len)) for answer in spaced if answer.strip()]

    def match(self, text: "Text") -> bool:
        lower = text.lower  # most texts contain no answer, and of ASCII text this tells so fast
        return any(
            (lower is None or longest in lower) and answer in text.tokens for answer, longest in self.answers
        )


class Patterns:
    """Answers as regular expressions (CuratedTREC), ignoring case; `^` and `$` match at line ends.

    skipped: the answers that are not used, each with the reason: an invalid expression, and one that takes
    longer than SECONDS for one text, as `(a+)+b` may take years.
    """

    def __init__(self, answers: Sequence[str]):
        self.skipped: dict[str, str] = {}
        self._patterns: dict[str, regex.Pattern[str]] = {}
        for answer in answers:
            plain = decomposed(answer)
            try:
                re.compile(plain)  # what Pyserini compiles; `regex` has a limit of time
                self._patterns[answer] = regex.compile(plain, regex.IGNORECASE | regex.MULTILINE)
            except (re.error, regex.error, OverflowError, RecursionError):
                self.skipped[answer] = "is not a regular expression"

    def match(self, text: "Text") -> bool:
        return self.match_decomposed(text.plain)

    def match_decomposed(self, text: str, at_start: bool = False) -> bool:
        """Whether an expression matches in a decomposed text, or at its start."""
        for answer, pattern in list(self._patterns.items()):
            find = pattern.match if at_start else pattern.search
            try:
                if find(text, timeout=SECONDS):
                    return True
            except TimeoutError:
                del self._patterns[answer]
                self.skipped[answer] = f"needs more than {SECONDS} s for a text"
        return False


class Text:
    """A text to match answers against. Its tokens are computed once, when they are first needed."""

    def __init__(self, text: str):
        self.plain = decomposed(text)
        self.lower = self.plain.lower() if text.isascii() else None

    @cached_property
    def tokens(self) -> str:
        return spaced_tokens(self.plain)


def contain_answers(
    answers: Mapping[int, Tokens | Patterns],
    documents: Texts,
    question_rows: np.ndarray,
    document_rows: np.ndarray,
) -> np.ndarray:
    """(P,) bool: whether each document contains an answer to its question.

    answers: the answers of the questions, by row. question_rows, document_rows: (P,), pairs ordered by
    document, so that each text is prepared once. Raises ValueError as `searched_texts`.
    """
    texts = searched_texts(documents)
    matches = np.zeros(len(question_rows), bool)
    rows, starts, counts = np.unique(document_rows, return_index=True, return_counts=True)
    for document, start, count in zip(rows.tolist(), starts.tolist(), counts.tolist(), strict=True):
        text, pairs = Text(texts[document]), slice(start, start + count)
        matches[pairs] = [answers[question].match(text) for question in question_rows[pairs].tolist()]
    return matches
