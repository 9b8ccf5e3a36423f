"""Static negatives from rankings that do not depend on the model: BM25's, which the run makes, or a file."""

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import PositiveInt

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.data.rankings import RankedRows, read_ranking
from pyserini_ance.negatives.filters.base import Candidates
from pyserini_ance.negatives.mined import MinedSource
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import NegativeTable

KEY = "stages.<stage>.terms.<term>.negatives.<position>.file"


class RankedSource(MinedSource):
    """Filters the top of a ranking of documents for each training query."""

    top_k: PositiveInt = 100
    """The number of candidates per query, after known positives and filtered candidates are removed."""
    scores_positives: ClassVar[bool] = True

    @abstractmethod
    def ranking_file(self, snapshot: Snapshot) -> Path:
        """The file of the ranking, in a format of `data/rankings.py`."""

    def check_data(self, anchor_set: AnchorSet) -> None:
        super().check_data(anchor_set)
        if anchor_set.anchor != "query":
            cure = "it cannot serve a term with `anchor: document`"
            raise ValueError(f"a `{self.kind}` source ranks documents for queries; {cure}")

    def mine(self, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext) -> NegativeTable:
        ranking = self.read(self.ranking_file(snapshot), snapshot.collection, anchor_set)
        candidates = Candidates(snapshot, anchor_set, ranking.rows, ranking.scores, lambda: ranking.positives)
        return self.table_of(candidates, self.top_k)

    def read(self, path: Path, collection: Collection, anchor_set: AnchorSet) -> RankedRows:
        """The ranking in `path`, with as many candidates per query as a table and its filters need."""
        top_k = self.top_k + self.extra_candidates(anchor_set)
        return read_ranking(path, anchor_set.split, collection, top_k, anchor_set.anchors)


class Bm25(RankedSource):
    """The ranking follows the recipe's `bm25:` settings. The kind `ranking` reads one from a file instead."""

    kind: Literal["bm25"] = "bm25"

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"bm25"}

    def ranking_file(self, snapshot: Snapshot) -> Path:
        return snapshot.data.training_rankings["bm25"]


class Ranking(RankedSource):
    """Reads a TREC run, or another format of `data/rankings.py`.

    The other formats are MS MARCO's runs and triples, and the negatives in the training files of DPR,
    Tevatron and FlagEmbedding.
    """

    kind: Literal["ranking"] = "ranking"
    file: Path
    """The file of the ranking."""

    @property
    def files(self) -> tuple[Path, ...]:
        return (find_file(self.file, KEY),)

    def read_ahead(self, collection: Collection, anchor_set: AnchorSet) -> None:
        self.read(self.files[0], collection, anchor_set)

    def ranking_file(self, snapshot: Snapshot) -> Path:
        return self.files[0]
