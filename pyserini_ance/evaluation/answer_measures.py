"""Coverage of passages by answer strings (top-k accuracy).

It is the share of questions with an answer in one of the first k passages: Success@k of ir-measures, with
passages judged by the answers they contain. Source: Karpukhin et al. 2020 (DPR), arXiv:2004.04906.
"""

import logging
from collections.abc import Sequence

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.answer_matching import ANSWERS, Patterns, Tokens, contain_answers, read_answers
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run, best_first
from pyserini_ance.evaluation.metrics import evaluate, row_of
from pyserini_ance.recipe.evaluation_settings import parse_measures

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
    return measure_by_answers(run, questions, documents, success_at(cutoffs), regular_expressions)


def success_at(cutoffs: Sequence[int]) -> list[Measure]:
    return parse_measures(f"Success@{cutoff}" for cutoff in cutoffs)


def is_of_answers(measure: Measure) -> bool:
    """Whether a measure can be computed for passages judged by answers, only as deep as the ranking:
    `Success@k`."""
    return measure.NAME == "Success" and measure.params.get("rel", 1) == 1


def measure_by_answers(
    run: Run,
    questions: Texts,
    documents: Texts,
    measures: Sequence[Measure],
    regular_expressions: bool = False,
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
    return evaluate(judge_by_answers(run, questions, documents, top_k, regular_expressions), run, measures)


def judge_by_answers(
    run: Run, questions: Texts, documents: Texts, top_k: int, regular_expressions: bool = False
) -> Qrels:
    """Grades of each question's first `top_k` documents in the run: 1 if the document's text contains an
    answer, else 0.

    Malformed regular expressions are skipped with a warning, as by Pyserini; 3 questions of CuratedTREC have
    one. So are those that need more than a second for a text. Raises ValueError for questions without
    answers, and for a document of the run that the collection lacks.
    """
    if ANSWERS not in questions.columns:
        raise ValueError(
            "these questions have no answers to judge passages by; pass questions with a list `answers`"
        )
    tops = [best_first(run.get(question, {}))[:top_k] for question in questions.ids]
    question_rows = np.repeat(np.arange(len(tops)), [len(top) for top in tops])
    ranked = [document for top in tops for document in top]
    document_rows = documents.rows_of(ranked)
    for row in np.flatnonzero(document_rows < 0)[:1].tolist():
        row_of(documents, ranked[row])  # raises
    order = np.argsort(document_rows, kind="stable")
    has_answer = np.empty(len(order), bool)
    matcher = Patterns if regular_expressions else Tokens
    answers = {row: matcher(read_answers(questions, row)) for row in np.unique(question_rows).tolist()}
    skipped: list[tuple[int, str, str]] | None = None
    while skipped != (found := [(row, *one) for row, of in answers.items() for one in of.skipped.items()]):
        skipped = found  # a pattern that is skipped at one document matches none
        has_answer[order] = contain_answers(answers, documents, question_rows[order], document_rows[order])
    for row, answer, reason in skipped:
        logger.warning("skipped: answer %r of question %s %s", answer, questions.ids[row], reason)
    grades = iter(has_answer.tolist())
    return {
        question: {document: int(next(grades)) for document in top}
        for question, top in zip(questions.ids, tops, strict=True)
    }
