"""What training reads: a collection, the token ids of all its texts, and rankings made beforehand."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.token_store import TokenStore


@dataclass(frozen=True)
class PreparedData:
    """`queries` holds one token store a split; `run_files` names TREC runs over the training queries (`bm25`).

    `tokenization` is a digest of how texts become tokens.
    """

    collection: Collection
    documents: TokenStore
    queries: dict[str, TokenStore]
    train_split: str
    tokenization: str
    run_files: dict[str, Path] = field(default_factory=dict)

    @cached_property
    def split(self) -> Split:
        return self.collection.split(self.train_split)

    @property
    def identity(self) -> dict[str, str]:
        """What tables of negatives were made from, beside weights."""
        return {"collection": self.collection.digest, "tokenization": self.tokenization}
