"""Static negatives from BM25's ranking of the training queries, which the run makes itself."""

from pathlib import Path
from typing import Literal

from pyserini_ance.negatives.mined import RankedSource
from pyserini_ance.negatives.snapshot import Snapshot


class Bm25(RankedSource):
    """The ranking follows the recipe's `bm25:` settings. The kind `ranking` reads one from a file instead."""

    kind: Literal["bm25"] = "bm25"

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"bm25"}

    def ranking_file(self, snapshot: Snapshot) -> Path:
        return snapshot.data.run_files["bm25"]
