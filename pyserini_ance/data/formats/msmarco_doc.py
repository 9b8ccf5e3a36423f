"""MS MARCO document ranking as it is distributed: documents of four columns, queries and qrels, without headers."""

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pyserini_ance.data.formats.format import Entry, Format, Parts
from pyserini_ance.data.formats.lines import find_file, read_lines, shown
from pyserini_ance.data.formats.tables import TrecQueries, trec_splits
from pyserini_ance.data.lookup import hash_of

CURE = "download both files again, or leave data.lookup out"


class MsmarcoDoc(Format):
    """`documents` is msmarco-docs.tsv: `docid TAB url TAB title TAB body`. Craswell et al. 2020, arXiv:2003.07820.

    Fields are url, title and text; what an encoder sees of them is said by its template. Of a document without a body, or
    a title, the rest counts. Double quotes are text like any other, as in microsoft/ANCE. `lookup`, msmarco-docs-lookup.tsv, says
    where each document begins: with it, documents that are another edition, cut short or put together are refused.
    """

    kind: str = "msmarco_doc"
    documents: Path
    lookup: Path | None = None
    splits: dict[str, TrecQueries]

    def parts(self) -> Parts:
        documents = find_file(self.documents, "data.documents")
        entries = _documents(documents)
        if self.lookup:
            entries = _where_the_lookup_says(entries, find_file(self.lookup, "data.lookup"))
        return Parts(entries, trec_splits(self.splits), [documents])


def _documents(path: Path) -> Iterator[Entry]:
    for line in read_lines(path):
        id, url, title, text = line.cells(("docid", "url", "title", "body"))
        yield Entry(line, id, {"url": url, "title": title, "text": text})


def _where_the_lookup_says(entries: Iterable[Entry], path: Path) -> Iterator[Entry]:
    """Raises ValueError at the first document that begins elsewhere, and when the lookup file tells of more."""
    starts, hashes = _read_lookup(path)
    place = -1
    for place, entry in enumerate(entries):
        hashed = hash_of(entry.id.encode(errors="surrogatepass"))
        if place == len(starts) or (starts[place], hashes[place]) != (entry.line.start, hashed):
            raise entry.line.error(f"document {shown(entry.id)} at byte {entry.line.start}", _place_in(path, starts[hashes == hashed]), CURE)
        yield entry
    if place + 1 < len(starts):
        raise ValueError(f"{path} tells of {len(starts)} documents, but only {place + 1} were read; {CURE}")


def _place_in(path: Path, found: np.ndarray) -> str:
    return f"it at byte {found[0]}, as {path} says" if len(found) else f"no such document, as {path} says"


def _read_lookup(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Where documents begin, ascending, and the hashes of their ids: 16 bytes a document. Columns: id, byte in the .trec file, in the .tsv."""
    starts, hashes = array("q"), array("Q")
    for line in read_lines(path):
        id, _, start = line.columns(("docid", "byte in msmarco-docs.trec", "byte in msmarco-docs.tsv"))
        if not (start.isascii() and start.isdigit() and len(start) < 19):
            raise line.error(f"byte {shown(start)}", "a whole number", "correct the line, or download the file again")
        starts.append(int(start))
        hashes.append(hash_of(id.encode(errors="surrogatepass")))
    order = np.argsort(starts, kind="stable")
    return np.asarray(starts)[order], np.asarray(hashes)[order]
