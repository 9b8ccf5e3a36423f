"""Remove documents that contain an answer to the question: in OpenQA they are relevant, judged or not."""

from typing import ClassVar, Literal

import numpy as np

from pyserini_ance.data.answer_matching import ANSWERS, FIELD, Tokens, contain_answers, read_answers
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.filters.base import Candidates, Filter


class Answers(Filter):
    """Removes pairs of a question and a document that contains one of its answers.

    Either side may be the anchor.

    Sources: Xiong et al. 2021 (ANCE, OpenQA), Karpukhin et al. 2020 (DPR), ANCE-Tele's NQ and TriviaQA.
    """

    # Differs from microsoft/ANCE: there, removed documents count towards the negatives to keep, so
    # questions with many removals keep fewer; `range_max` before this filter does the same.

    kind: Literal["answers"] = "answers"
    expensive: ClassVar[bool] = True

    def check_data(self, anchor_set: AnchorSet) -> None:
        queries = anchor_set.split.queries
        if ANSWERS not in queries.columns:
            raise ValueError(
                f"filter `answers`: the queries of split {anchor_set.split.name!r} have no answers; add a "
                "list `answers` (queries.jsonl of kind beir, topics .jsonl of kind pyserini_jsonl), or "
                "remove the filter"
            )

    def mask(self, candidates: Candidates) -> np.ndarray:
        queries, documents = candidates.anchor_set.split.queries, candidates.snapshot.collection.documents
        if FIELD not in documents.columns:
            raise ValueError(
                f"filter `answers` searches the field {FIELD!r}, but documents have "
                f"{', '.join(documents.columns)}; remove the filter"
            )

        def contain(query_rows: np.ndarray, document_rows: np.ndarray) -> np.ndarray:
            matchers = {row: Tokens(read_answers(queries, row)) for row in np.unique(query_rows).tolist()}
            texts = documents.columns[FIELD]
            return contain_answers(matchers, texts.__getitem__, query_rows, document_rows)

        return candidates.mask_pairs(contain)
