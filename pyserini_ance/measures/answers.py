"""Exact match and F1 of answers, as SQuAD's evaluation script has them: over several gold answers the best counts.

Source: Rajpurkar et al. 2016, arXiv:1606.05250; `evaluate-v1.1.py`. DPR and RAG measure exact match the same way.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from pyserini_ance.data.answers import Patterns, decomposed, is_pattern

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
EXACT, F1 = "EM", "F1"


def normalized(answer: str) -> str:
    """In lower case, without ASCII punctuation and the articles a, an, the, one blank between words."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    return float(any(normalized(prediction) == normalized(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, of the answer for which it is highest. Two blank texts share no word: 0."""
    return max((_f1(normalized(prediction).split(), normalized(answer).split()) for answer in answers), default=0.0)


def pattern_match(prediction: str, patterns: Sequence[str]) -> float:
    """Whether the prediction begins with what one of the regular expressions matches, as in DrQA (Chen et al. 2017, arXiv:1704.00051):
    without case, `^` and `$` those of a line. One that is no regular expression matches nothing.
    """
    text, known = decomposed(prediction), Patterns([pattern for pattern in patterns if is_pattern(pattern)])
    return float(any(pattern.match(text) for pattern in known.wanted))


def measure_answers(predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]], regular_expressions: bool = False) -> dict[str, float]:
    """Means over all questions of `gold`; one without a prediction counts as 0. Regular expressions have no words, so no F1."""
    measures = {EXACT: pattern_match} if regular_expressions else {EXACT: exact_match, F1: f1}
    return {name: sum(measure(predictions[q], gold[q]) for q in gold if q in predictions) / len(gold) for name, measure in measures.items()}


def _f1(prediction: Sequence[str], answer: Sequence[str]) -> float:
    shared = sum((Counter(prediction) & Counter(answer)).values())
    return 2 * shared / (len(prediction) + len(answer)) if shared else 0.0
