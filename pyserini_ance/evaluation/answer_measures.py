"""Measures by answer strings: coverage of passages (top-k accuracy), and exact match and F1 of predicted
answers.

Coverage is the share of questions with an answer in one of the first k passages: Success@k of ir-measures,
with passages judged by the answers they contain. Source: Karpukhin et al. 2020 (DPR), arXiv:2004.04906. Exact
match and F1 are those of SQuAD's evaluation script: the best over several gold answers counts.
"""

import logging
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.answer_matching import (
    ANSWERS,
    FIELD,
    Patterns,
    Tokens,
    contain_answers,
    decomposed,
    is_pattern,
    read_answers,
)
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run, best_first
from pyserini_ance.evaluation.metrics import evaluate, row_of
from pyserini_ance.recipe.evaluation_settings import parse_measures

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
    return max(
        (_f1(normalized(prediction).split(), normalized(answer).split()) for answer in answers), default=0.0
    )


def pattern_match(prediction: str, patterns: Sequence[str]) -> float:
    """Whether one of the regular expressions matches at the prediction's start, as in DrQA.

    Case is ignored; `^` and `$` match at line breaks. A malformed expression matches nothing. Source: Chen et
    al. 2017, arXiv:1704.00051.
    """
    text = decomposed(prediction)
    valid = Patterns([pattern for pattern in patterns if is_pattern(pattern)])
    return float(any(pattern.match(text) for pattern in valid.patterns))


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


def _f1(prediction: Sequence[str], answer: Sequence[str]) -> float:
    shared = sum((Counter(prediction) & Counter(answer)).values())
    return 2 * shared / (len(prediction) + len(answer)) if shared else 0.0


CUTOFFS = (5, 20, 100)
logger = logging.getLogger(__name__)


def coverage(
    run: Run,
    questions: Texts,
    documents: Texts,
    cutoffs: Sequence[int] = CUTOFFS,
    regular_expressions: bool = False,
) -> dict[str, float]:
    """`Success@k` of each cutoff over all questions; a question without hits counts as 0.

    Raises ValueError for a run with fewer hits than the largest cutoff, and as `judge_by_answers` does.
    """
    top_k = max(cutoffs)
    most_hits = max((len(hits) for query, hits in run.items() if query in questions.rows), default=0)
    if 0 < most_hits < min(top_k, len(documents)):
        raise ValueError(
            f"the run has at most {most_hits} hits a question, so Success@{top_k} would be too low; "
            "pass a run with more hits, or smaller cutoffs"
        )
    qrels = judge_by_answers(run, questions, documents, top_k, regular_expressions)
    return evaluate(qrels, run, success_at(cutoffs))


def success_at(cutoffs: Sequence[int]) -> list[Measure]:
    return parse_measures(f"Success@{cutoff}" for cutoff in cutoffs)


def is_of_answers(measure: Measure) -> bool:
    """Whether a measure can be computed for passages judged by answers, only as deep as the ranking:
    `Success@k`."""
    return measure.NAME == "Success" and measure.params.get("rel", 1) == 1


def measure_by_answers(
    run: Run, questions: Texts, documents: Texts, measures: Sequence[Measure]
) -> dict[str, float]:
    """Measures of a ranking of questions without qrels.

    Raises ValueError for measures other than Success@k, and as `judge_by_answers` does.
    """
    if others := [measure for measure in measures if not is_of_answers(measure)]:
        raise ValueError(
            "these questions have no judgments: passages are judged by the answers they contain, for "
            f"{', '.join(map(str, success_at(CUTOFFS)))} only, not for {others[0]}; use such measures, or "
            "pass judgments: --qrels FILE"
        )
    top_k = max(measure.params["cutoff"] for measure in measures)
    return evaluate(judge_by_answers(run, questions, documents, top_k), run, measures)


def judge_by_answers(
    run: Run, questions: Texts, documents: Texts, top_k: int, regular_expressions: bool = False
) -> Qrels:
    """Grades of each question's first `top_k` documents in the run: 1 if the first line of the document's
    text contains an answer, else 0.

    Pyserini's `evaluate_dpr_retrieval` reads that line alone, because it separates titles by a line end.

    Malformed regular expressions are skipped with a warning, as by Pyserini; 3 questions of CuratedTREC have
    one. Raises ValueError for questions without answers, and for a document of the run that the collection
    lacks.
    """
    if ANSWERS not in questions.columns:
        raise ValueError(
            "these questions have no answers to judge passages by; pass questions with a list `answers`"
        )
    if FIELD not in documents.columns:
        raise ValueError(
            f"answers are searched in the field {FIELD!r}, but documents have {', '.join(documents.columns)}"
        )
    tops = [best_first(run.get(question, {}))[:top_k] for question in questions.ids]
    question_rows = np.repeat(np.arange(len(tops)), [len(top) for top in tops])
    document_rows = np.fromiter(
        (row_of(documents, document) for top in tops for document in top), np.int64, len(question_rows)
    )
    order = np.argsort(document_rows, kind="stable")
    has_answer = np.empty(len(order), bool)
    answers = {
        row: _answers(questions, row, regular_expressions) for row in np.unique(question_rows).tolist()
    }
    has_answer[order] = contain_answers(
        answers, _FirstLines(documents.columns[FIELD]), question_rows[order], document_rows[order]
    )
    grades = iter(has_answer.tolist())
    return {
        question: {document: int(next(grades)) for document in top}
        for question, top in zip(questions.ids, tops, strict=True)
    }


def _answers(questions: Texts, row: int, regular_expressions: bool) -> Tokens | Patterns:
    answers = read_answers(questions, row)
    if not regular_expressions:
        return Tokens(answers)
    for malformed in (answer for answer in answers if not is_pattern(answer)):
        logger.warning(
            "skipped: answer %r of question %s is not a regular expression", malformed, questions.ids[row]
        )
    return Patterns([answer for answer in answers if is_pattern(answer)])


class _FirstLines(Sequence[str]):
    """The texts up to their first line ends."""

    def __init__(self, texts: Sequence[str]):
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row):
        return self._texts[row].partition("\n")[0]
