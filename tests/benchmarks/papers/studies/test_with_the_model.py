"""Studies that use the model, against slow references on the vectors of a small run."""

import math

import numpy as np
import pytest

from benchmarks.papers.studies import distances, positive_neighbors
from benchmarks.papers.studies.studied_run import StudiedRun


def document_vectors(studied: StudiedRun) -> np.ndarray:
    documents = studied.data.collection.documents
    return studied.result.encoder.encode([documents[row] for row in range(30)], side="document")


def test_distances_and_uniformity_by_hand():
    """Unit vectors at 0, 90 and 180 degrees: cosine distances 1, 2, 1, squared distances twice that."""
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], np.float32)
    assert distances.own_distances(vectors).tolist() == pytest.approx([1.0, 2.0, 1.0])
    mean = (2 * math.exp(-4) + math.exp(-8)) / 3
    assert distances.uniformity(vectors) == pytest.approx(math.log(mean), abs=1e-5)


def test_distances_of_a_run_pair_by_pair(studied):
    found = {row["quantity"]: row for row in distances.study([studied]).rows}
    encoder, data = studied.result.encoder, studied.data
    anchors = studied.sampled_anchors("study distances").tolist()
    queries = distances.unit(encoder.encode([data.split.queries[anchor] for anchor in anchors]))
    documents = distances.unit(document_vectors(studied))
    own = [1 - float(queries[i] @ queries[j]) for i in range(len(anchors)) for j in range(i)]
    assert found["query-query"]["value"] == pytest.approx(np.mean(own), abs=1e-5)
    assert found["query-query"]["variance"] == pytest.approx(np.var(own), abs=1e-5)
    positives = [int(data.anchor_sets["query"].known_positives.of(anchor)[0]) for anchor in anchors]
    squared = [np.square(q - documents[p]).sum() for q, p in zip(queries, positives, strict=True)]
    assert found["alignment"]["value"] == pytest.approx(np.mean(squared), abs=1e-4)
    assert found["query-document"]["pairs"] == 100 and found["uniformity of queries"]["pairs"] == 45


def test_neighbours_of_the_positive_one_by_one(studied):
    rows = positive_neighbors.study([studied]).rows
    assert [(row["generation"], row["next"]) for row in rows] == [("ance-0", "ance-2"), ("ance-2", "ance-4")]
    known = studied.data.anchor_sets["query"].known_positives
    anchors = studied.sampled_anchors("study positive-neighbors").tolist()
    weights = studied.generations[0][1].weights
    checkpoint = next(n for n in studied.kept_checkpoints if studied.snapshot(n).weights == weights)
    documents = studied.snapshot(checkpoint).document_vectors[np.arange(30)]
    first, second = (generation.tables["query", 0] for _, generation in studied.generations[:2])
    new_shares, shares = [], []
    for anchor in anchors:
        scores = documents @ documents[int(known.of(anchor)[0])]
        ranked = [row for row in np.argsort(-scores, kind="stable").tolist() if row not in known.of(anchor)]
        at = first.positions(np.array([anchor]))[0]
        negatives, before = second.candidates[at].tolist(), first.candidates[at].tolist()
        new = [row for row in negatives if row not in before]
        new_shares += [np.mean([row in ranked[:5] for row in new])] if new else []
        shares.append(np.mean([row in ranked[:5] for row in negatives]))
    assert rows[0]["all"] == pytest.approx(np.mean(shares))
    assert rows[0]["new"] == pytest.approx(np.mean(new_shares) if new_shares else None)
    assert rows[0]["by chance"] == pytest.approx(5 / 30)
