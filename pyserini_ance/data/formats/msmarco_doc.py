"""MS MARCO document ranking as it is distributed: documents of four columns, queries and qrels, without headers."""

from collections.abc import Iterator
from pathlib import Path

from pyserini_ance.data.formats.format import Entry, Format, Parts
from pyserini_ance.data.formats.lines import find_file, read_lines
from pyserini_ance.data.formats.tables import TrecQueries, trec_splits


class MsmarcoDoc(Format):
    """`documents` is msmarco-docs.tsv: `docid TAB url TAB title TAB body`. Craswell et al. 2020, arXiv:2003.07820.

    Fields are url, title and text; what an encoder sees of them is said by its template. Of a document without a body, or
    a title, the rest counts. Double quotes are text like any other, as in microsoft/ANCE.
    """

    kind: str = "msmarco_doc"
    documents: Path
    splits: dict[str, TrecQueries]

    def parts(self) -> Parts:
        documents = find_file(self.documents, "data.documents")
        return Parts(_documents(documents), trec_splits(self.splits), [documents])


def _documents(path: Path) -> Iterator[Entry]:
    for line in read_lines(path):
        id, url, title, text = line.cells(("docid", "url", "title", "body"))
        yield Entry(line, id, {"url": url, "title": title, "text": text})
