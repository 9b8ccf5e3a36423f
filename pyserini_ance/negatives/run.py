"""Static negatives from a ranking made beforehand: BM25's by default, or one of a file."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import PositiveInt

from pyserini_ance.data.collection import Collection, Side
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.rankings import Ranking, read_ranking
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import NegativeTable

KEY = "stages.<stage>.terms.<term>.negatives.<position>.file"


class Run(MinedSource):
    """`file: null` takes the run's own BM25 ranking of the training queries; else a ranking for them.

    That is a TREC run, or another of the forms of `data/rankings.py`: MS MARCO's runs and triples, or what DPR's, Tevatron's
    and FlagEmbedding's training files list as negatives.
    """

    kind: Literal["run"] = "run"
    file: Path | None = None
    depth: PositiveInt = 100
    scores_positives: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.file else frozenset({"bm25"})

    def check_data(self, direction: Direction) -> None:
        super().check_data(direction)
        if direction.anchor != "query":
            raise ValueError("a `run` source ranks documents for queries; it cannot serve a term with `anchor: document`")

    @property
    def files(self) -> tuple[Path, ...]:
        return (find_file(self.file, KEY),) if self.file else ()

    def read_ahead(self, collection: Collection, direction: Direction) -> None:
        for path in self.files:
            self._ranking(path, collection, direction)

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        (path,) = self.files or (snapshot.run_files["bm25"],)
        direction = snapshot.direction(anchor)
        ranking = self._ranking(path, snapshot.collection, direction)
        return self.table_of(Candidates(snapshot, direction, ranking.found, ranking.scores, lambda: ranking.positives), self.depth)

    def _ranking(self, path: Path, collection: Collection, direction: Direction) -> Ranking:
        return read_ranking(path, direction.split, collection.documents, self.depth + self.extra_depth(direction))
