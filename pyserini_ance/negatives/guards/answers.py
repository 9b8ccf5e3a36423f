"""Leave out documents that contain an answer to the question: in OpenQA they are relevant, judged or not."""

import re
from typing import ClassVar, Literal

import numpy as np

from pyserini_ance.data.answers import ANSWERS, FIELD, Patterns, Tokens, contain, read_answers
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard


class Answers(Guard):
    """Sources: Xiong et al. 2021 (ANCE, OpenQA), Karpukhin et al. 2020 (DPR), ANCE-Tele's NQ and TriviaQA.

    Between documents as anchors and queries as candidates, the same pairs are out.
    """

    # Differs from microsoft/ANCE: there what the rule takes out counts towards the negatives to keep, so that questions with much
    # to take out keep fewer; DANCE's copy of those lines asks "BUG?".

    kind: Literal["answers"] = "answers"
    regular_expressions: bool = False
    costly: ClassVar[bool] = True

    def check_data(self, direction: Direction) -> None:
        queries = direction.split.queries
        if ANSWERS not in queries.columns:
            raise ValueError(
                f"guard `answers`: the queries of split {direction.split.name!r} have no answers; give them a list `answers` "
                "(queries.jsonl of kind beir, topics .jsonl of kind pyserini_jsonl), or leave the guard out"
            )
        if self.regular_expressions:
            for row in range(len(queries)):
                _refuse_malformed(queries, row)

    def mark(self, candidates: Candidates) -> np.ndarray:
        queries, documents = candidates.direction.split.queries, candidates.snapshot.collection.documents
        if FIELD not in documents.columns:
            fields = ", ".join(documents.columns)
            raise ValueError(f"guard `answers` looks into the field {FIELD!r}, but documents have {fields}; leave the guard out")
        return candidates.mark_pairs(lambda *pairs: self._contain(queries, documents, *pairs))

    def _contain(self, queries: Texts, documents: Texts, query_rows: np.ndarray, document_rows: np.ndarray) -> np.ndarray:
        kind = Patterns if self.regular_expressions else Tokens
        asked = {row: kind(read_answers(queries, row)) for row in np.unique(query_rows).tolist()}
        return contain(asked, documents.columns[FIELD], query_rows, document_rows)


def _refuse_malformed(queries: Texts, row: int) -> None:
    for answer in read_answers(queries, row):
        try:
            Patterns([answer])
        except re.error as error:
            raise ValueError(
                f"guard `answers`: answer {answer!r} of query {queries.ids[row]} is no regular expression ({error}); "
                "correct it, or leave out regular_expressions: true"
            ) from None
