"""Static negatives from a ranking made beforehand: BM25's by default, or one of a file."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import PositiveInt

from pyserini_ance.data.collection import Side
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.rankings import read_ranking
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
        if self.file:
            find_file(self.file, KEY)

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        path = find_file(self.file, KEY) if self.file else snapshot.run_files["bm25"]
        direction = snapshot.direction(anchor)
        ranking = read_ranking(path, snapshot.split, snapshot.collection.documents, self.depth + self.extra_depth(direction))
        return self.table_of(Candidates(snapshot, direction, ranking.found, ranking.scores, lambda: ranking.positives), self.depth)
