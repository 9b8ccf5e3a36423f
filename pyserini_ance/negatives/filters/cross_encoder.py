"""Remove documents that a cross-encoder finds relevant: a stronger judge than the retriever in training."""

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.encoders.cross_encoder_model import (
    BATCH_PAIRS,
    CrossEncoderModel,
    record_text,
    require_sentence_transformers,
)
from pyserini_ance.negatives.filters.base import Candidates, Filter


class CrossEncoderFilter(Filter):
    """Removes pairs of a query and a document that score above `max_score`.

    The model reads the query's `text` and all fields of the document.
    Source: Qu et al. 2021, arXiv:2010.08191 (RocketQA).
    """

    kind: Literal["cross_encoder"] = "cross_encoder"
    model: str
    """A cross-encoder of sentence-transformers: a hub name or a folder."""
    max_score: float
    """The highest score that a negative may have, on the model's own scale."""
    batch_pairs: PositiveInt = BATCH_PAIRS
    """The number of pairs that the model scores at once."""
    expensive: ClassVar[bool] = True

    def check_data(self, anchor_set: AnchorSet) -> None:
        require_sentence_transformers()

    def mask(self, candidates: Candidates) -> np.ndarray:
        queries = candidates.anchor_set.split.queries.columns["text"]
        documents = candidates.snapshot.collection.documents
        model = _load(self.model, candidates.snapshot.device, self.batch_pairs)

        def judge(query_rows: np.ndarray, document_rows: np.ndarray) -> np.ndarray:
            rows = zip(query_rows.tolist(), document_rows.tolist(), strict=True)
            pairs = [(queries[query], record_text(documents[document])) for query, document in rows]
            return model.scores(pairs) > self.max_score

        return candidates.mask_pairs(judge)


@lru_cache(maxsize=1)
def _load(model: str, device: str, batch_pairs: int) -> CrossEncoderModel:
    """Load the model once; later refreshes use it again."""
    return CrossEncoderModel(model, device, batch_pairs)
