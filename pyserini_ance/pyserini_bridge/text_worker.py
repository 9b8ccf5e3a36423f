"""The process in which Java lives while texts are read: `python -m pyserini_ance.pyserini_bridge.text_worker JOB`.

JOB is JSON: {"index": a folder or a name, "sets": [{"topics": name}, {"qrels": name}, ...]}. It writes JSON lines to stdout: each document's
id, and what the index stores of it; then each set's topics, or where its qrels lie. An empty object ends each of them.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyserini_ance.pyserini_bridge.jvm import import_pyserini
from pyserini_ance.pyserini_bridge.lucene import open_searcher


def documents(index: str) -> Iterator[dict[str, Any]]:
    searcher = open_searcher(index, "data.index")
    for number in range(searcher.num_docs):
        document = searcher.doc(number)
        yield {"id": document.docid(), "raw": document.raw(), "contents": document.contents()}


def topics(name: str) -> Iterator[dict[str, Any]]:
    """Pyserini makes a number of an id of digits: 007 becomes 7."""
    for id, fields in import_pyserini("pyserini.search").get_topics(name).items():
        yield {"id": str(id), **fields}


def qrels(name: str) -> Iterator[dict[str, Any]]:
    yield {"file": str(import_pyserini("pyserini.search").get_qrels_file(name))}


PARTS = {"topics": topics, "qrels": qrels}


def main() -> None:
    job = json.loads(sys.argv[1])
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)  # Anserini logs to stdout
        parts = [documents(job["index"]), *(PARTS[part](name) for one in job["sets"] for part, name in one.items())]
        try:
            for part in parts:
                out.writelines(json.dumps(record) + "\n" for record in part)
                out.write("{}\n")
        except (RuntimeError, ValueError, OSError) as error:
            sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
