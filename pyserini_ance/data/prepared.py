"""What training reads: a collection, the token ids of all its texts, and rankings made beforehand."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import SIDES, Collection, Side, Split
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.joint import rows_of_parts
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.token_store import TokenStore


@dataclass(frozen=True)
class PreparedData:
    """`queries` holds one token store a split; `run_files` names TREC runs over the training queries (`bm25`).

    `parts` names the splits that `train_split` joins, where it does.
    `documents` has a row for each passage; `passages` says which are of which document, None: the document is its only one.
    Empty passages are searched, and mined from, but not trained on.
    `tokenization` is a digest of how texts become tokens.
    """

    collection: Collection
    documents: TokenStore
    queries: dict[str, TokenStore]
    train_split: str
    tokenization: str
    run_files: dict[str, Path] = field(default_factory=dict)
    passages: Passages | None = None
    parts: tuple[str, ...] = ()

    @cached_property
    def split(self) -> Split:
        return self.collection.split(self.train_split)

    @cached_property
    def part_rows(self) -> tuple[slice, ...]:
        """Of the training queries, those of each split that they come from."""
        return rows_of_parts([self.collection.split(part) for part in self.parts or (self.train_split,)])

    @cached_property
    def directions(self) -> dict[Side, Direction]:
        """Of the training queries and their relevant documents, by the anchors' side."""
        return {side: Direction.of(self.collection, self.train_split, side) for side in SIDES}

    def rows_of(self, documents: np.ndarray) -> tuple[np.ndarray, Passages | None]:
        """What a search finds of some documents, rows among tokens and vectors, and which of them are of which."""
        return self.passages.rows(documents) if self.passages else (documents, None)

    def training_rows_of(self, documents: np.ndarray) -> tuple[np.ndarray, Passages | None]:
        """What a step scores of them."""
        return self.passages.filled_rows(documents) if self.passages else (documents, None)

    @property
    def identity(self) -> dict[str, str]:
        """What tables of negatives were made from, beside weights."""
        return {"collection": self.collection.digest, "tokenization": self.tokenization}
