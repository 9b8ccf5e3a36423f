"""Rankings made one by Pyserini's own fusion; it needs no Java, but for `hybrid`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyserini_ance.data.trec import Run
from pyserini_ance.measures.evaluate import best_first

POOL = 1000  # hits of each ranking that count, as in Pyserini
RRF_K = 60
Fused = list[tuple[str, str, float]]  # query, document, score


class Method(NamedTuple):
    """`weights` are tried where one is to be chosen, far apart: BM25 scores some 10, a cosine 1, ANCE 700. None where there is no weight."""

    about: str
    weights: tuple[float, ...] = ()


METHODS = {
    "rrf": Method(f"reciprocal ranks, 1 / ({RRF_K} + rank), summed"),
    "average": Method("mean of the scores; of a document that a ranking lacks, 0"),
    "normalize": Method("scores of each ranking's query brought to 0-1, summed"),
    "interpolation": Method(
        "weight x first + (1 - weight) x second; a lacking document has 0",
        (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995),
    ),
    "hybrid": Method(
        "weight x first + second, as pyserini.search.hybrid; a lacking document has the ranking's lowest score",
        (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    ),
}


def fuse(runs: Sequence[Run], method: str, weight: float | None = None) -> Run:
    """Documents of each query, best first in trec_eval's order. Interpolation and hybrid are of two runs.

    Sources: `pyserini.fusion`, `HybridSearcher` of `pyserini.search.hybrid`.
    """
    scores: Run = {}
    for query, document, score in (_hybrid if method == "hybrid" else _fusion(method))(runs, weight):
        scores.setdefault(query, {})[document] = score
    return {query: {document: found[document] for document in best_first(found)} for query, found in scores.items()}


def _fusion(method: str) -> Callable[[Sequence[Run], float | None], Fused]:
    """One of Pyserini's functions over its own table of a ranking, in which queries and documents are strings."""
    from pyserini import fusion
    from pyserini.trectools import TrecRun

    given = {
        "rrf": lambda runs, weight: fusion.reciprocal_rank_fusion(runs, rrf_k=RRF_K, depth=POOL),
        "average": lambda runs, weight: fusion.average(runs, depth=POOL),
        "normalize": lambda runs, weight: fusion.normalize(runs, depth=POOL),
        "interpolation": lambda runs, weight: fusion.interpolation(runs, alpha=weight, depth=POOL),
    }[method]

    def fused(runs: Sequence[Run], weight: float | None) -> Fused:
        table = given([TrecRun.from_list(_rows(run)) for run in runs], weight).run_data
        return list(zip(table["topic"], table["docid"], table["score"].tolist(), strict=True))

    return fused


def _rows(run: Run) -> list[tuple]:
    """In the columns of Pyserini's TrecRun."""
    ordered = ((query, best_first(hits)[:POOL]) for query, hits in run.items())
    return [(query, "Q0", doc, rank, run[query][doc], "t") for query, found in ordered for rank, doc in enumerate(found, start=1)]


def _hybrid(runs: Sequence[Run], weight: float | None) -> Fused:
    from pyserini_ance.pyserini_bridge.jvm import import_pyserini

    made = import_pyserini("pyserini.search.hybrid").HybridSearcher._hybrid_results
    hit = import_pyserini("pyserini.search.faiss").DenseSearchResult
    fused = []
    for query in {**runs[0], **runs[1]}:
        sparse, dense = ([hit(d, run[query][d]) for d in best_first(run.get(query, {}))[:POOL]] for run in runs)
        fused += [(query, found.docid, found.score) for found in made(dense, sparse, weight, len(sparse) + len(dense))]
    return fused
