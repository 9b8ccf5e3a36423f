"""MS MARCO passage ranking as distributed: a collection, queries and qrels in tables without headers."""

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.formats.topics import CorpusFormat


class MsmarcoPassage(CorpusFormat):
    """MS MARCO passages; `corpus` is collection.tsv, a table `pid TAB text`.

    Source: Bajaj et al. 2016, arXiv:1611.09268.
    """

    kind: str = "msmarco_passage"

    def document(self, line: Line) -> Entry:
        id, text = line.cells(("id", "text"))
        return Entry(line, id, {"text": text})
