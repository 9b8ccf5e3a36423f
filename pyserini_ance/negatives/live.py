"""LTRe's candidates: what the query tower retrieves in the very step, from all documents, positives among them.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Algorithm 1, steps 3 and 4.
"""

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt, model_validator

from pyserini_ance.data.collection import Relation
from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.source import Source
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.vectors.index import FLAT


class Live(Source):
    """All of the top `depth` are candidates, and those among them that are known positives are the positives.

    `index` is `flat`, which is exact, or a Faiss factory string such as `OPQ96,IVF1,PQ96`, trained once on the stage's document
    vectors. Where nothing relevant is found, `replace_last` puts the query's positive in the last place, and `append` puts all
    its positives after the last.
    """

    kind: Literal["live"] = "live"
    depth: PositiveInt = 200
    index: str = FLAT
    # ADORE, the code of LTRe's successor (jingtaozhan/DRhard), appends; the paper replaces.
    no_relevant: Literal["replace_last", "append"] = "replace_last"
    live: ClassVar[bool] = True

    @model_validator(mode="after")
    def draws_nothing(self):
        if self.per_query != 1:
            raise ValueError(f"a `live` source takes all of the top `depth`: set depth={self.per_query}, and leave out per_query")
        return self

    def check_data(self, direction: Direction) -> None:
        if direction.anchor != "query":
            raise ValueError("a `live` source searches documents for queries; it cannot serve a term with `anchor: document`")

    def draw(self, rows: np.ndarray, table: NegativeTable | None, direction: Direction, rng: np.random.Generator) -> np.ndarray:
        """Nothing: the step's query vectors find the candidates."""
        return np.empty((len(rows), 0), np.int32)

    def candidates(self, found: np.ndarray, rows: np.ndarray, positives: np.ndarray, relation: Relation) -> np.ndarray:
        """(B, n) document rows, PADDING where there is none, of what was `found` (B, k), best first, for the queries `rows` (B,).

        `positives` (B, P) are those drawn for the step.
        """
        without = ~known_positive(relation, rows, found).any(1)
        if self.no_relevant == "replace_last":
            return np.concatenate([found[:, :-1], np.where(without, positives[:, 0], found[:, -1])[:, None]], axis=1)
        appended = [relation.of(row) if lacking else [] for row, lacking in zip(rows, without, strict=True)]
        more = np.full((len(rows), max(map(len, appended), default=0)), PADDING, np.int32)
        for place, own in enumerate(appended):
            more[place, : len(own)] = own
        return np.concatenate([found, more], axis=1)
