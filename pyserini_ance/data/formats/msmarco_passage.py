"""MS MARCO passage ranking as it is distributed: a collection, queries and qrels, tables without a header."""

from pathlib import Path

from pyserini_ance.data.formats.format import Format, Parts
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.formats.tables import TrecQueries, trec_splits, tsv_entries


class MsmarcoPassage(Format):
    """`collection` is a table `pid TAB text`. Bajaj et al. 2016, arXiv:1611.09268."""

    kind: str = "msmarco_passage"
    collection: Path
    splits: dict[str, TrecQueries]

    def parts(self) -> Parts:
        collection = find_file(self.collection, "data.collection")
        return Parts(tsv_entries(collection), trec_splits(self.splits), [collection])
