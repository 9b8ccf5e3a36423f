"""Leave out what a cross-encoder finds relevant: a stronger judge than the retriever that is being trained."""

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard
from pyserini_ance.rerankers.cross_encoder import BATCH_PAIRS, require_sentence_transformers, text_of
from pyserini_ance.rerankers.cross_encoder import CrossEncoder as Model


class CrossEncoder(Guard):
    """Out goes a query's document that scores above `above`, on the scale of the `model` (a name or a folder of sentence-transformers).

    The model reads the query's `text`, and all fields of the document. Source: Qu et al. 2021, arXiv:2010.08191 (RocketQA).
    """

    kind: Literal["cross_encoder"] = "cross_encoder"
    model: str
    above: float
    batch_pairs: PositiveInt = BATCH_PAIRS
    costly: ClassVar[bool] = True

    def check_data(self, direction: Direction) -> None:
        require_sentence_transformers()

    def mark(self, candidates: Candidates) -> np.ndarray:
        queries, documents = candidates.direction.split.queries.columns["text"], candidates.snapshot.collection.documents
        model = _load(self.model, candidates.snapshot.device, self.batch_pairs)

        def judge(query_rows: np.ndarray, document_rows: np.ndarray) -> np.ndarray:
            rows = zip(query_rows.tolist(), document_rows.tolist(), strict=True)
            return model.scores([(queries[query], text_of(documents[document])) for query, document in rows]) > self.above

        return candidates.mark_pairs(judge)


@lru_cache(maxsize=1)
def _load(model: str, device: str, batch_pairs: int) -> Model:
    """Kept from one refresh to the next."""
    return Model(model, device, batch_pairs)
