"""Answer coverage: for how many questions one of the first k passages holds an answer; also called top-k accuracy.

It is Success@k of ir-measures, with passages judged by the answers they hold. Source: Karpukhin et al. 2020 (DPR), arXiv:2004.04906.
"""

import logging
from collections.abc import Sequence

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.answers import ANSWERS, FIELD, Patterns, Tokens, contain, is_pattern, read_answers
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import Qrels, Run
from pyserini_ance.measures.evaluate import best_first, evaluate, row_of
from pyserini_ance.recipe.measure import parse

CUTOFFS = (5, 20, 100)
logger = logging.getLogger(__name__)


def coverage(
    run: Run, questions: Texts, documents: Texts, cutoffs: Sequence[int] = CUTOFFS, regular_expressions: bool = False
) -> dict[str, float]:
    """`Success@k` of each cutoff over all questions; one without any hit counts as 0. Raises ValueError as `judge_by_answers` does."""
    depth = max(cutoffs)
    deepest = max((len(hits) for query, hits in run.items() if query in questions.rows), default=0)
    if 0 < deepest < min(depth, len(documents)):
        raise ValueError(f"the run has at most {deepest} hits a question, so Success@{depth} would be too low; give a deeper run or smaller cutoffs")
    return evaluate(judge_by_answers(run, questions, documents, depth, regular_expressions), run, success_at(cutoffs))


def success_at(cutoffs: Sequence[int]) -> list[Measure]:
    return parse(f"Success@{cutoff}" for cutoff in cutoffs)


def is_of_answers(measure: Measure) -> bool:
    """Whether it can be had of passages that are judged by answers, and no deeper than the ranking: `Success@k`."""
    return measure.NAME == "Success" and measure.params.get("rel", 1) == 1


def measure_by_answers(run: Run, questions: Texts, documents: Texts, measures: Sequence[Measure]) -> dict[str, float]:
    """Measures of a ranking of questions that nobody has judged. Raises ValueError for any but Success@k, and as `judge_by_answers` does."""
    if others := [measure for measure in measures if not is_of_answers(measure)]:
        raise ValueError(
            f"these questions have no judgments: passages are judged by the answers they hold, for {', '.join(map(str, success_at(CUTOFFS)))} "
            f"alone, not for {others[0]}; ask for such measures, or give judgments: --qrels FILE"
        )
    depth = max(measure.params["cutoff"] for measure in measures)
    return evaluate(judge_by_answers(run, questions, documents, depth), run, measures)


def judge_by_answers(run: Run, questions: Texts, documents: Texts, depth: int, regular_expressions: bool = False) -> Qrels:
    """Of every question, grades of the first `depth` documents that the run has for it: 1 for one that holds an answer, else 0.

    Regular expressions that are none are passed over, as Pyserini does: 3 questions of CuratedTREC have one. Raises ValueError for
    questions without answers, and for a document of the run that is not there.
    """
    if ANSWERS not in questions.columns:
        raise ValueError("these questions have no answers, by which passages could be judged; name questions that have a list `answers`")
    if FIELD not in documents.columns:
        raise ValueError(f"answers are looked for in the field {FIELD!r}, but documents have {', '.join(documents.columns)}")
    tops = [best_first(run.get(question, {}))[:depth] for question in questions.ids]
    question_rows = np.repeat(np.arange(len(tops)), [len(top) for top in tops])
    document_rows = np.fromiter((row_of(documents, document) for top in tops for document in top), np.int64, len(question_rows))
    order = np.argsort(document_rows, kind="stable")
    holds = np.empty(len(order), bool)
    answers = {row: _answers(questions, row, regular_expressions) for row in np.unique(question_rows).tolist()}
    holds[order] = contain(answers, documents.columns[FIELD], question_rows[order], document_rows[order])
    grades = iter(holds.tolist())
    return {question: {document: int(next(grades)) for document in top} for question, top in zip(questions.ids, tops, strict=True)}


def _answers(questions: Texts, row: int, regular_expressions: bool) -> Tokens | Patterns:
    answers = read_answers(questions, row)
    if not regular_expressions:
        return Tokens(answers)
    for malformed in (answer for answer in answers if not is_pattern(answer)):
        logger.warning("passed over: answer %r of question %s is no regular expression", malformed, questions.ids[row])
    return Patterns([answer for answer in answers if is_pattern(answer)])
