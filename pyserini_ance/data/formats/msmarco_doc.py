"""MS MARCO document ranking as distributed: documents of four columns, queries and qrels, without headers."""

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pyserini_ance.data.formats.builder import Entry, LineDocuments, TrecQueries, trec_splits
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line, shown
from pyserini_ance.data.formats.text_files import find_file, read_lines
from pyserini_ance.data.string_arrays import hash_of

CURE = "download both files again, or remove data.lookup"


class MsmarcoDoc(Format):
    """MS MARCO documents; `documents` is msmarco-docs.tsv: `docid TAB url TAB title TAB body`.

    The fields are url, title and text; the encoder's template selects among them. A document may lack its
    body or its title. Double quotes are ordinary characters, as in microsoft/ANCE. `lookup`,
    msmarco-docs-lookup.tsv, gives the byte at which each document starts; with it, a different edition, a
    truncated or a concatenated file is an error.

    Source: Craswell et al. 2020, arXiv:2003.07820.
    """

    kind: str = "msmarco_doc"
    documents: Path
    """The table of documents, msmarco-docs.tsv."""
    lookup: Path | None = None
    """The table of byte offsets, msmarco-docs-lookup.tsv, to check the documents with."""
    splits: dict[str, TrecQueries]
    """The files of each split."""

    def raw_data(self) -> RawData:
        documents = find_file(self.documents, "data.documents")
        entries: Iterable[Entry] = LineDocuments([documents], _document)
        if self.lookup:
            entries = _verified(entries, find_file(self.lookup, "data.lookup"))
        return RawData(entries, trec_splits(self.splits), [documents])


def _document(line: Line) -> Entry:
    id, url, title, text = line.cells(("docid", "url", "title", "body"))
    return Entry(line, id, {"url": url, "title": title, "text": text})


def _verified(entries: Iterable[Entry], path: Path) -> Iterator[Entry]:
    """Yield the documents, verified against the lookup file at `path`.

    Raises ValueError at the first document that starts at another byte, and if the lookup file lists more
    documents.
    """
    starts, hashes = _read_lookup(path)
    index = -1
    for index, entry in enumerate(entries):
        hashed = hash_of(entry.id.encode(errors="surrogatepass"))
        if index == len(starts) or (starts[index], hashes[index]) != (entry.line.start, hashed):
            raise entry.line.error(
                f"document {shown(entry.id)} at byte {entry.line.start}",
                _expected_start(path, starts[hashes == hashed]),
                CURE,
            )
        yield entry
    if index + 1 < len(starts):
        raise ValueError(f"{path} lists {len(starts)} documents, but only {index + 1} were read; {CURE}")


def _expected_start(path: Path, starts: np.ndarray) -> str:
    return f"it at byte {starts[0]}, as {path} says" if len(starts) else f"no such document, as {path} says"


def _read_lookup(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The bytes at which documents start, ascending, and the hashes of their ids: 16 bytes per document.

    The columns of the file are the id, the byte in the .trec file and the byte in the .tsv file.
    """
    starts, hashes = array("q"), array("Q")
    for line in read_lines(path):
        id, _, start = line.columns(("docid", "byte in msmarco-docs.trec", "byte in msmarco-docs.tsv"))
        if not (start.isascii() and start.isdigit() and len(start) < 19):
            raise line.error(
                f"byte {shown(start)}", "a whole number", "correct the line, or download the file again"
            )
        starts.append(int(start))
        hashes.append(hash_of(id.encode(errors="surrogatepass")))
    order = np.argsort(starts, kind="stable")
    return np.asarray(starts)[order], np.asarray(hashes)[order]
