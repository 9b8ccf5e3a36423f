"""MS MARCO passage ranking as distributed: a collection, queries and qrels in tables without headers."""

from pathlib import Path

from pyserini_ance.data.formats.builder import TrecQueries, trec_splits, tsv_entries
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import find_file


class MsmarcoPassage(Format):
    """MS MARCO passages; `collection` is a table `pid TAB text`.

    Source: Bajaj et al. 2016, arXiv:1611.09268.
    """

    kind: str = "msmarco_passage"
    collection: Path
    """The table of passages, collection.tsv."""
    splits: dict[str, TrecQueries]
    """The files of each split."""

    def raw_data(self) -> RawData:
        collection = find_file(self.collection, "data.collection")
        return RawData(tsv_entries(collection), trec_splits(self.splits))
