"""LTRe candidates: what the query tower retrieves in each step from all documents, positives included.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Algorithm 1, steps 3 and 4.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt, model_validator

from pyserini_ance.data.known_positives import KnownPositives, is_known_positive
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.source import Source
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.vectors.faiss_index import FLAT


class Live(Source):
    """All of the top `top_k` are candidates; the known positives among them are the positives of the step. If
    none is retrieved, the query's positive takes the last rank."""

    kind: Literal["live"] = "live"
    top_k: PositiveInt = 200
    """The number of documents that each step retrieves per query."""
    index: str = FLAT
    """`flat` (exact), or a Faiss factory string such as `OPQ96,IVF1,PQ96`, trained once per stage."""
    live: ClassVar[bool] = True

    @model_validator(mode="after")
    def check_num_negatives(self) -> "Live":
        if self.num_negatives != 1:
            cure = f"set top_k={self.num_negatives}, and remove num_negatives"
            raise ValueError(f"a `live` source uses all of the top `top_k`: {cure}")
        return self

    def check_data(self, anchor_set: AnchorSet) -> None:
        if anchor_set.anchor != "query":
            cure = "it cannot serve a term with `anchor: document`"
            raise ValueError(f"a `live` source searches documents for queries; {cure}")

    def draw(
        self, rows: np.ndarray, table: NegativeTable | None, anchor_set: AnchorSet, rng: np.random.Generator
    ) -> np.ndarray:
        """(B, 0): the candidates are found later, with the step's query vectors."""
        return np.empty((len(rows), 0), np.int32)

    def candidates(
        self, hits: np.ndarray, rows: np.ndarray, positives: np.ndarray, known_positives: KnownPositives
    ) -> np.ndarray:
        """(B, k) document rows for the queries `rows` (B,), best first.

        hits: (B, k) document rows retrieved, best first. positives: (B, P), those drawn for the step.
        """
        # Differs from ADORE, the code of LTRe's successor (jingtaozhan/DRhard), which appends all positives.
        lacks_positive = ~is_known_positive(known_positives, rows, hits).any(1)
        last = np.where(lacks_positive, positives[:, 0], hits[:, -1])
        return np.concatenate([hits[:, :-1], last[:, None]], axis=1)
