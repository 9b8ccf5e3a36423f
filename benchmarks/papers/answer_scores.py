"""Exact match and F1 of predicted answers, as SQuAD's evaluation script: the best over several gold answers
counts."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from pyserini_ance.data.answer_matching import Patterns, decomposed

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
EXACT, F1 = "EM", "F1"


def normalized(answer: str) -> str:
    """The answer in lower case, without ASCII punctuation and articles (a, an, the), words separated by one
    blank."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    return float(any(normalized(prediction) == normalized(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, for the best answer; 0 for two empty texts."""
    words, best = normalized(prediction).split(), 0.0
    for answer in (normalized(answer).split() for answer in answers):
        shared = sum((Counter(words) & Counter(answer)).values())
        best = max(best, 2 * shared / (len(words) + len(answer)) if shared else 0.0)
    return best


def pattern_match(prediction: str, patterns: Sequence[str]) -> float:
    """Whether one of the regular expressions matches at the prediction's start, as in DrQA.

    Case is ignored; `^` and `$` match at line breaks. A malformed expression matches nothing. Source: Chen et
    al. 2017, arXiv:1704.00051.
    """
    return float(Patterns(patterns).match_decomposed(decomposed(prediction), at_start=True))


def measure_answers(
    predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]], regular_expressions: bool = False
) -> dict[str, float]:
    """Means over all questions of `gold`; a missing prediction counts as 0.

    Regular expressions have no F1.
    """
    measures = {EXACT: pattern_match} if regular_expressions else {EXACT: exact_match, F1: f1}
    return {
        name: sum(measure(predictions[q], gold[q]) for q in gold if q in predictions) / len(gold)
        for name, measure in measures.items()
    }
