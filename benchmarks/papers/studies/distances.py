"""Distances in the space of vectors: of queries, of documents and between them; alignment and uniformity.

Sources: Li et al. 2021 (DANCE), Section 5.3, Table 3; Wang and Isola 2020, arXiv:2005.10242.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from benchmarks.papers.studies.figures import Panel, bars, heights
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.random_streams import random_stream
from pyserini_ance.trainer.regularizers.alignment_and_uniformity import Alignment, Uniformity

TITLE = "Distances, alignment and uniformity"
EXPONENT = 2.0  # t of the uniformity, as Wang and Isola have it


def study(runs: Sequence[StudiedRun]) -> Findings:
    """Mean and variance of the cosine distance of pairs (query-query, document-document, query-document);
    alignment, the mean squared distance of a query and its positive; uniformity, log mean exp(-2 d^2), of
    queries and of documents. All vectors are scaled to length 1.

    Queries are a sample of those of training, documents as many at random. In several passages (MaxP), each
    passage counts as a document.
    """
    rows = [row for run in runs for row in _rows(run)]

    pairs = [row for row in rows if "variance" in row]
    ends = [row for row in rows if "variance" not in row]
    mean, variance, end = (
        bars(heights(own, "quantity", "run", key))
        for own, key in ((pairs, "value"), (pairs, "variance"), (ends, "value"))
    )
    panels = [
        Panel("Mean distance of pairs", "pairs", "cosine distance", mean),
        Panel("Variance of the distance", "pairs", "variance", variance),
        Panel("Alignment and uniformity (lower is better)", "", "squared distance; log", end),
    ]
    return Findings(rows, panels)


def _rows(run: StudiedRun) -> Iterator[Row]:
    snapshot = run.result
    anchors = run.sampled_anchors("study distances")
    known = run.data.anchor_sets["query"].known_positives
    total = len(snapshot.document_vectors)
    rng = random_stream("study distances: documents", run.settings.seed)
    sampled = np.sort(rng.choice(total, min(total, run.settings.queries), replace=False))
    queries = unit(snapshot.encode_queries(run.data.train_split, anchors))
    documents = unit(snapshot.document_vectors[sampled])
    found = unit(_best_passages(run, queries, known.rows[known.offsets[anchors]]))
    for quantity, distances in (
        ("query-query", own_distances(queries)),
        ("document-document", own_distances(documents)),
        ("query-document", (1 - queries @ documents.T).ravel()),
    ):
        yield {
            "run": run.name,
            "quantity": quantity,
            "value": float(distances.mean()),
            "variance": float(distances.var()),
            "pairs": len(distances),
        }
    pairs = torch.arange(len(anchors))[:, None].expand(-1, 2)
    aligned = Alignment()(torch.from_numpy(queries), torch.from_numpy(found), pairs)
    yield {"run": run.name, "quantity": "alignment", "value": float(aligned), "pairs": len(anchors)}
    for name, vectors in (("queries", queries), ("documents", documents)):
        yield {
            "run": run.name,
            "quantity": f"uniformity of {name}",
            "value": uniformity(vectors),
            "pairs": len(vectors) * (len(vectors) - 1) // 2,
        }


def _best_passages(run: StudiedRun, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """(A, D) the vector of each of `documents` (A,), of several passages the one nearest to its query."""
    vectors, passages = run.result.document_vectors, run.data.passages
    if passages is None:
        return vectors[documents]
    pieces, mask = passages.of(documents)
    of_pieces = vectors[pieces.ravel()].reshape(*pieces.shape, -1)
    scores = np.where(mask, np.einsum("ad,apd->ap", queries, of_pieces), -np.inf)
    return of_pieces[np.arange(len(documents)), scores.argmax(1)]


def unit(vectors: np.ndarray) -> np.ndarray:
    """(N, D) the vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def own_distances(vectors: np.ndarray) -> np.ndarray:
    """(N (N - 1) / 2,) the cosine distances of all pairs of unit vectors (N, D)."""
    return (1 - vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]


def uniformity(vectors: np.ndarray) -> float:
    """log mean exp(-2 d^2) over all pairs of unit vectors (N, D)."""
    return float(Uniformity(t=EXPONENT)._of(torch.from_numpy(np.ascontiguousarray(vectors))))
