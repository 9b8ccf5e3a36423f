"""Distances in the space of vectors: of queries, of documents and between them; alignment and uniformity.

Sources: Li et al. 2021 (DANCE), Section 5.3, Table 3; Wang and Isola 2020, arXiv:2005.10242.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.papers.studies.figures import Panel, bars, heights
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.trainer.regularizers.alignment_and_uniformity import Alignment, uniformity
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.search import DOCUMENTS_PER_BLOCK

EXPONENT = 2.0  # t of the uniformity, as Wang and Isola have it


def study(runs: Sequence[StudiedRun]) -> Findings:
    """Mean and variance of the cosine distance over all pairs of training and test queries, of all documents,
    and of a query and a document. For a sample of the training queries and as many documents: alignment, the
    mean squared distance of a query and its positive, and uniformity, log mean exp(-2 d^2).

    All vectors are scaled to length 1. In several passages (MaxP), each passage counts as a document; a
    positive is at their mean.
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
    snapshot, vectors, training = run.result, run.result.document_vectors, run.training_queries
    of_splits = {each.name: np.arange(len(each.split.queries)) for each in (training, run.test_queries)}
    queries = Moments.of(np.concatenate([snapshot.encode_queries(*each) for each in of_splits.items()]))
    documents = Moments.of(vectors)
    for quantity, one, other in (
        ("query-query", queries, queries),
        ("document-document", documents, documents),
        ("query-document", queries, documents),
    ):
        yield {"run": run.name, "quantity": quantity, **one.distances(other)}
    anchors, known = run.sampled_anchors("study distances"), training.known_positives
    sampled = run.sample("study distances: documents", len(vectors), run.settings.queries)
    of_anchors = unit(snapshot.encode_queries(training.name, anchors))
    found = unit(run.document_vectors(known.rows[known.offsets[anchors]]))
    pairs = torch.arange(len(anchors))[:, None].expand(-1, 2)
    aligned = Alignment()(torch.from_numpy(of_anchors), torch.from_numpy(found), pairs)
    yield {"run": run.name, "quantity": "alignment", "value": float(aligned), "pairs": len(anchors)}
    for name, own in (("queries", of_anchors), ("documents", unit(vectors[sampled]))):
        about = {"run": run.name, "quantity": f"uniformity of {name}"}
        value = float(uniformity(torch.from_numpy(own), EXPONENT))
        yield {**about, "value": value, "pairs": len(own) * (len(own) - 1) // 2}


class Moments(NamedTuple):
    """The number of vectors, and the sums of the unit vectors (D,) and of their outer products (D, D).

    The mean and the variance of all pairs' cosines follow from them, without the pairs.
    """

    number: int
    total: np.ndarray
    outer: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray | ShardedVectors) -> "Moments":
        """`vectors` (N, D) may be a memory map; it is read block by block."""
        total, outer = np.zeros(vectors.shape[1]), np.zeros((vectors.shape[1], vectors.shape[1]))
        for start in range(0, len(vectors), DOCUMENTS_PER_BLOCK):
            block = unit(np.asarray(vectors[start : start + DOCUMENTS_PER_BLOCK], np.float64))
            total += block.sum(0)
            outer += block.T @ block
        return cls(len(vectors), total, outer)

    def distances(self, others: "Moments") -> Row:
        """Mean and variance over all pairs of a vector and one of the others; of two of its own, if it is
        given itself."""
        equal = self.number if others is self else 0  # pairs of a vector and itself, whose cosine is 1
        pairs = self.number * others.number - equal
        mean = (self.total @ others.total - equal) / pairs
        variance = ((self.outer * others.outer).sum() - equal) / pairs - mean**2
        counted = pairs // 2 if equal else pairs
        return {"value": float(1 - mean), "variance": float(variance), "pairs": counted}


def unit(vectors: np.ndarray) -> np.ndarray:
    """(N, D) the vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
