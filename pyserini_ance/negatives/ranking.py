"""Static negatives from a ranking in a file, made beforehand."""

from pathlib import Path
from typing import Literal

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.mined import RankedSource
from pyserini_ance.negatives.snapshot import Snapshot

KEY = "stages.<stage>.terms.<term>.negatives.<position>.file"


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
        for path in self.files:
            self.read(path, collection, anchor_set)

    def ranking_file(self, snapshot: Snapshot) -> Path:
        return find_file(self.file, KEY)
