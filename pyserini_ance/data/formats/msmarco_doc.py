"""MS MARCO document ranking as distributed: documents of four columns, queries and qrels, without headers."""

from pathlib import Path

from pyserini_ance.data.formats.builder import Entry, TrecQueries, trec_splits
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, find_file, read_lines


class MsmarcoDoc(Format):
    """MS MARCO documents; `documents` is msmarco-docs.tsv: `docid TAB url TAB title TAB body`.

    The fields are url, title and text; the encoder's template selects among them. A document may lack its
    body or its title. Double quotes are ordinary characters, as in microsoft/ANCE.

    Source: Craswell et al. 2020, arXiv:2003.07820.
    """

    kind: str = "msmarco_doc"
    documents: Path
    """The table of documents, msmarco-docs.tsv."""
    splits: dict[str, TrecQueries]
    """The files of each split."""

    def raw_data(self) -> RawData:
        documents = find_file(self.documents, "data.documents")
        return RawData(map(_document, read_lines(documents)), trec_splits(self.splits))


def _document(line: Line) -> Entry:
    id, url, title, text = line.cells(("docid", "url", "title", "body"))
    return Entry(line, id, {"url": url, "title": title, "text": text})
