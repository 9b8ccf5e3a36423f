"""MS MARCO document ranking as distributed: documents of four columns, queries and qrels, without headers."""

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.formats.topics import CorpusFormat


class MsmarcoDoc(CorpusFormat):
    """MS MARCO documents; `corpus` is msmarco-docs.tsv: `docid TAB url TAB title TAB body`.

    The fields are url, title and text; the encoder's template selects among them. A document may lack its
    body or its title. Double quotes are ordinary characters, as in microsoft/ANCE.

    Source: Craswell et al. 2020, arXiv:2003.07820.
    """

    kind: str = "msmarco_doc"

    def document(self, line: Line) -> Entry:
        id, url, title, text = line.cells(("docid", "url", "title", "body"))
        return Entry(line, id, {"url": url, "title": title, "text": text})
