"""What a search takes: a query encoded and looked for by Pyserini's searchers, one after another as they would come from users."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyserini_ance.pyserini_bridge.jvm import import_pyserini


def time_dense(model: Path, index: Path, queries: Sequence[str], hits: int) -> list[float]:
    """Milliseconds of each query, by an encoder of ours and a Faiss folder, on the processor."""
    faiss = import_pyserini("pyserini.search.faiss")
    from pyserini_ance.pyserini_bridge.encoders import QueryEncoder

    searcher = faiss.FaissSearcher(str(index), QueryEncoder(str(model)))
    return _timed(lambda query: searcher.search(query, k=hits), queries)


def time_bm25(index: Path, k1: float, b: float, queries: Sequence[str], hits: int) -> list[float]:
    """Milliseconds of each query, by a Lucene index."""
    searcher = import_pyserini("pyserini.search.lucene").LuceneSearcher(str(index))
    searcher.set_bm25(k1, b)
    return _timed(lambda query: searcher.search(query, k=hits), queries)


def _timed(search: Callable[[str], object], queries: Sequence[str]) -> list[float]:
    """The first query is searched twice: a first search loads what all others find loaded."""
    search(queries[0])
    found = []
    for query in queries:
        began = time.perf_counter()
        search(query)
        found.append(1000 * (time.perf_counter() - began))
    return found
