"""MS MARCO passage ranking as it is distributed: a collection, queries and qrels, tables without a header."""

from pathlib import Path

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.formats.tables import trec_judgments, tsv_entries
from pyserini_ance.recipe.parts import Settings


class Questions(Settings):
    """A split: `qid TAB text`, and TREC qrels."""

    queries: Path
    qrels: Path


class MsmarcoPassage(Format):
    """`collection` is a table `pid TAB text`. Bajaj et al. 2016, arXiv:1611.09268."""

    kind: str = "msmarco_passage"
    collection: Path
    splits: dict[str, Questions]

    def read(self) -> Collection:
        collection = find_file(self.collection, "data.collection")
        splits = {}
        for name, files in self.splits.items():
            queries = find_file(files.queries, f"data.splits.{name}.queries")
            qrels = find_file(files.qrels, f"data.splits.{name}.qrels")
            splits[name] = tsv_entries(queries), trec_judgments(qrels)
        return self.assemble(tsv_entries(collection), splits)
