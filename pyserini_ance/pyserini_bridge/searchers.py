"""Pyserini's searchers and fusion: the time per query, and combined rankings."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
Fused = tuple[str, str, float]  # query, document, score


class Method(NamedTuple):
    """A fusion method.

    weights: the values tried to choose a weight; they vary widely, because BM25 scores are about 10,
        cosines 1, and ANCE's scores 700. Empty if the method has no weight.
    highest_weight: the highest weight that can be chosen; the lowest is 0.
    """

    description: str
    weights: tuple[float, ...] = ()
    highest_weight: float = sys.float_info.max

    def check_weight(self, weight: float) -> None:
        """Raises ValueError for a weight that is not a number, or out of range."""
        if not 0 <= weight <= self.highest_weight:
            bounds = f"from 0 to {self.highest_weight:g}" if self.highest_weight == 1 else "from 0"
            raise ValueError(f"--weight {weight:g}: expected a number {bounds} ({self.description})")


METHODS = {
    "rrf": Method(f"reciprocal ranks, 1 / ({RRF_K} + rank), summed"),
    "average": Method("mean of the scores; 0 for a document that a ranking lacks"),
    "normalize": Method("scores of each query in each ranking scaled to 0-1, summed"),
    "interpolation": Method(
        "weight x first + (1 - weight) x second; 0 for a missing document",
        (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995),
        1,
    ),
    "hybrid": Method(
        "weight x first + second, as pyserini.search.hybrid; a missing document gets the ranking's lowest "
        "score",
        (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    ),
}


def fuse(
    runs: Sequence[Run], method: str, weight: float | None = None, pool: int = POOL, hits: int | None = None
) -> Run:
    """Fuse runs; documents are in trec_eval's order, best first. Interpolation and hybrid take two runs.

    The first `pool` documents of each ranking count; `hits` of the fused ones are kept (default: all).

    Sources: `pyserini.fusion`, `HybridSearcher` of `pyserini.search.hybrid`.
    """
    scores: Run = {}
    combine = _by_hybrid_search if method == "hybrid" else _by_tables
    for query, document, score in combine(method, runs, weight, pool, hits):
        scores.setdefault(query, {})[document] = score
    return {query: {document: of[document] for document in best_first(of)} for query, of in scores.items()}


def _by_tables(
    method: str, runs: Sequence[Run], weight: float | None, pool: int, hits: int | None
) -> Iterable[Fused]:
    """Fuse by a function of Pyserini, with its own tables, in which queries and documents are strings."""
    from pyserini import fusion
    from pyserini.trectools import TrecRun

    settings: dict[str, Any] = {"alpha": weight} if METHODS[method].weights else {}
    settings |= {"rrf_k": RRF_K} if method == "rrf" else {}
    function = getattr(fusion, "reciprocal_rank_fusion" if method == "rrf" else method)
    tables = []
    for run in runs:
        rows = [
            (query, "Q0", document, rank, of[document], "t")
            for query, of in run.items()
            for rank, document in enumerate(best_first(of)[:pool], start=1)
        ]
        tables.append(TrecRun.from_list(rows) if run else TrecRun())  # from_list fails without rows
    table = function(tables, depth=pool, k=hits, **settings).run_data
    return zip(table["topic"], table["docid"], table["score"].tolist(), strict=True)


def _by_hybrid_search(
    method: str, runs: Sequence[Run], weight: float | None, pool: int, hits: int | None
) -> Iterable[Fused]:
    combine = import_pyserini("pyserini.search.hybrid").HybridSearcher._hybrid_results
    hit_class = import_pyserini("pyserini.search.faiss").DenseSearchResult
    for query in {**runs[0], **runs[1]}:
        sparse, dense = (
            [hit_class(d, run[query][d]) for d in best_first(run.get(query, {}))[:pool]] for run in runs
        )
        for hit in combine(dense, sparse, weight, hits or len(sparse) + len(dense)):
            yield query, hit.docid, hit.score
