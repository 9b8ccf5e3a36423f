"""Filters by text: documents with an answer to the question, and copies of a known positive."""

import hashlib
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from pyserini_ance.data.answer_matching import ANSWERS, Tokens, contain_answers, read_answers
from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.texts import text_key
from pyserini_ance.negatives.filters.base import Candidates, Filter
from pyserini_ance.negatives.table import PADDING


class Answers(Filter):
    """Removes pairs of a question and a document that contains one of its answers: in OpenQA such documents
    are relevant, judged or not. Either side may be the anchor.

    Sources: Xiong et al. 2021 (ANCE, OpenQA), Karpukhin et al. 2020 (DPR), ANCE-Tele's NQ and TriviaQA.
    """

    # Differs from microsoft/ANCE: there, removed documents count towards the negatives to keep, so
    # questions with many removals keep fewer; `range_max` before this filter does the same.

    kind: Literal["answers"] = "answers"
    expensive: ClassVar[bool] = True

    def check_data(self, anchor_set: AnchorSet) -> None:
        if ANSWERS not in anchor_set.split.queries.columns:
            raise ValueError(
                f"filter `answers`: the queries of split {anchor_set.split.name!r} have no answers; add a "
                "list `answers` (queries.jsonl of kind beir, topics .jsonl of kind pyserini_jsonl), or "
                "remove the filter"
            )

    def mask(self, candidates: Candidates) -> np.ndarray:
        queries, documents = candidates.anchor_set.split.queries, candidates.snapshot.collection.documents

        def contain(query_rows: np.ndarray, document_rows: np.ndarray) -> np.ndarray:
            matchers = {row: Tokens(read_answers(queries, row)) for row in np.unique(query_rows).tolist()}
            return contain_answers(matchers, documents, query_rows, document_rows)

        return candidates.mask_pairs(contain)


class Duplicates(Filter):
    """Removes candidates with the text of a known positive: under another id it is not a negative.

    Compares texts as the encoder's template builds them, ignoring case and the amount of whitespace.
    """

    kind: Literal["duplicates"] = "duplicates"
    expensive: ClassVar[bool] = True

    def mask(self, candidates: Candidates) -> np.ndarray:
        anchor_set, snapshot = candidates.anchor_set, candidates.snapshot
        known_positives, side = anchor_set.by_text, anchor_set.candidate
        texts = snapshot.collection.documents if side == "document" else anchor_set.split.queries
        present = candidates.rows != PADDING
        rows = np.unique(np.concatenate([candidates.rows[present], known_positives.rows]))
        # (R,) int64: rows with equal texts have equal ids.
        built = (snapshot.tokenization.text(side, texts[row]) for row in rows.tolist())
        digests = (hashlib.blake2b(text_key(text).encode(), digest_size=8).digest() for text in built)
        numbers = (int.from_bytes(digest, "little") for digest in digests)
        text_ids = np.unique(np.fromiter(numbers, np.uint64, len(rows)), return_inverse=True)[1]
        # With rows replaced by text ids, a candidate with the text of a known positive is a known positive.
        positives = replace(known_positives, rows=text_ids[np.searchsorted(rows, known_positives.rows)])
        candidate_ids = np.full(candidates.rows.shape, PADDING)
        candidate_ids[present] = text_ids[np.searchsorted(rows, candidates.rows[present])]
        anchors = anchor_set.first_of(anchor_set.anchor, anchor_set.anchors)
        return is_known_positive(positives, anchors, candidate_ids)
