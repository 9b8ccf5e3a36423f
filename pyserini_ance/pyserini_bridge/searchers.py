"""Pyserini's searchers and fusion: the time per query, and combined rankings."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.trec import Run, best_first
from pyserini_ance.pyserini_bridge.java import import_pyserini


def time_dense(model: Path, index: Path, queries: Sequence[str], hits: int) -> list[float]:
    """Milliseconds of each query with a saved encoder and a Faiss folder, on the CPU, one query at a time."""
    faiss = import_pyserini("pyserini.search.faiss")
    from pyserini_ance.pyserini_bridge.encoder_classes import QueryEncoder

    searcher = faiss.FaissSearcher(str(index), QueryEncoder(str(model)))
    return _timed(lambda query: searcher.search(query, k=hits), queries)


def time_bm25(index: Path, k1: float, b: float, queries: Sequence[str], hits: int) -> list[float]:
    """Milliseconds of each query with a Lucene index, one query at a time."""
    searcher = import_pyserini("pyserini.search.lucene").LuceneSearcher(str(index))
    searcher.set_bm25(k1, b)
    return _timed(lambda query: searcher.search(query, k=hits), queries)


def _timed(search: Callable[[str], object], queries: Sequence[str]) -> list[float]:
    """Search the first query once more before the measurement, because the first search loads the index."""
    search(queries[0])
    milliseconds = []
    for query in queries:
        start = time.perf_counter()
        search(query)
        milliseconds.append(1000 * (time.perf_counter() - start))
    return milliseconds


POOL = 1000  # hits of each ranking that are used, as in Pyserini
RRF_K = 60
METHODS = {
    "rrf": f"reciprocal ranks, 1 / ({RRF_K} + rank), summed",
    "average": "mean of the scores; 0 for a document that a ranking lacks",
    "normalize": "scores of each query in each ranking scaled to 0-1, summed",
    "interpolation": "weight x first + (1 - weight) x second; 0 for a missing document",
}
WEIGHTED = "interpolation"  # the method that has a weight, and takes two rankings
# Tried to choose the weight. They vary widely: BM25's scores are about 10, cosines 1, and ANCE's scores 700.
WEIGHTS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def fuse(
    runs: Sequence[Run], method: str, weight: float | None = None, pool: int = POOL, hits: int | None = None
) -> Run:
    """Fuse runs by `pyserini.fusion`; documents are in trec_eval's order, best first.

    The first `pool` documents of each ranking count; `hits` of the fused ones are kept (default: all).
    """
    from pyserini import fusion
    from pyserini.trectools import TrecRun

    settings: dict[str, Any] = {"alpha": weight} if method == WEIGHTED else {}
    settings |= {"rrf_k": RRF_K} if method == "rrf" else {}
    function = getattr(fusion, "reciprocal_rank_fusion" if method == "rrf" else method)
    tables = []  # in which queries and documents are strings
    for run in runs:
        rows = [
            (query, "Q0", document, rank, of[document], "t")
            for query, of in run.items()
            for rank, document in enumerate(best_first(of)[:pool], start=1)
        ]
        tables.append(TrecRun.from_list(rows) if rows else TrecRun())  # from_list fails without rows
    table = function(tables, depth=pool, k=hits, **settings).run_data
    scores: Run = {}
    for query, document, score in zip(table["topic"], table["docid"], table["score"].tolist(), strict=True):
        scores.setdefault(query, {})[document] = score
    return {query: {document: of[document] for document in best_first(of)} for query, of in scores.items()}
