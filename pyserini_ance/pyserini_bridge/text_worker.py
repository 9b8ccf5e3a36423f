"""The process that reads texts with Java: `python -m pyserini_ance.pyserini_bridge.text_worker KIND NAME`.

It writes JSON lines to stdout: the id and the stored fields of each document (kind `index`: a folder or a
name), topics, or the path of qrels.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from pyserini_ance.pyserini_bridge.java import import_pyserini


def documents(index: str) -> Iterator[dict[str, Any]]:
    """The id and the stored fields of each document of a folder, or of a prebuilt index, which Pyserini
    downloads on first use."""
    of_folder = import_pyserini("pyserini.search.lucene").LuceneSearcher
    if (searcher := (of_folder if os.path.isdir(index) else of_folder.from_prebuilt_index)(index)) is None:
        raise RuntimeError(
            f"not a folder, and Pyserini {version('pyserini')} has no index of that name (no network?)"
        )
    bits = import_pyserini("pyserini.pyclass").autoclass("org.apache.lucene.index.MultiBits")
    live = bits.getLiveDocs(searcher.index_reader.reader)  # None: no document was deleted
    for number in range(searcher.num_docs):  # which counts the deleted ones
        if live is None or live.get(number):
            document = searcher.doc(number)
            yield {"id": document.docid(), "raw": document.raw(), "contents": document.contents()}


def topics(name: str) -> Iterator[dict[str, Any]]:
    """The topics of a set. Pyserini converts an id of digits to a number: 007 becomes 7."""
    for id, fields in import_pyserini("pyserini.search").get_topics(name).items():
        yield {"id": str(id), **fields}


def qrels(name: str) -> Iterator[dict[str, Any]]:
    """The path of a set's qrels."""
    yield {"file": str(import_pyserini("pyserini.search").get_qrels_file(name))}


READERS = {"index": documents, "topics": topics, "qrels": qrels}


def main() -> None:
    """Read the records that the two arguments name."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)  # Anserini logs to stdout
        try:
            out.writelines(json.dumps(record) + "\n" for record in READERS[sys.argv[1]](sys.argv[2]))
        except Exception as error:  # those of Java have no base of their own
            said = getattr(error, "innermessage", None) or str(error)  # without Java's trace
            sys.exit(f"\nerror: {type(error).__name__}: {' '.join(said.split())}")


if __name__ == "__main__":
    main()
