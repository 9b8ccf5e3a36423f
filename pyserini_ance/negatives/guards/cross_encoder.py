"""Leave out what a cross-encoder finds relevant: a stronger judge than the retriever that is being trained."""

from functools import lru_cache
from importlib.util import find_spec
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard


class CrossEncoder(Guard):
    """Out goes a query's document that scores above `above`, on the scale of the `model` (a name or a folder of sentence-transformers).

    The model reads the query's `text`, and all fields of the document. Source: Qu et al. 2021, arXiv:2010.08191 (RocketQA).
    """

    kind: Literal["cross_encoder"] = "cross_encoder"
    model: str
    above: float
    batch_pairs: PositiveInt = 32
    costly: ClassVar[bool] = True

    def check_data(self, direction: Direction) -> None:
        if find_spec("sentence_transformers") is None:
            raise RuntimeError(
                "guard `cross_encoder` needs sentence-transformers, which is not installed: python -m pip install sentence-transformers"
            )

    def mark(self, candidates: Candidates) -> np.ndarray:
        queries, documents = candidates.direction.split.queries.columns["text"], candidates.snapshot.collection.documents
        model = _load(self.model, candidates.snapshot.device)

        def judge(query_rows: np.ndarray, document_rows: np.ndarray) -> np.ndarray:
            rows = zip(query_rows.tolist(), document_rows.tolist(), strict=True)
            pairs = [(queries[query], " ".join(filter(None, documents[document].values()))) for query, document in rows]
            if not pairs:
                return np.zeros(0, bool)
            scores = np.asarray(model.predict(pairs, batch_size=self.batch_pairs, show_progress_bar=False))
            if scores.shape != (len(pairs),):
                raise ValueError(f"guard `cross_encoder`: {self.model} gives {scores.shape[1]} scores a pair, expected one; name another model")
            return scores > self.above

        return candidates.mark_pairs(judge)


@lru_cache(maxsize=1)
def _load(model: str, device: str):
    """Kept from one refresh to the next."""
    from sentence_transformers import CrossEncoder as Model

    return Model(model, device=device)
