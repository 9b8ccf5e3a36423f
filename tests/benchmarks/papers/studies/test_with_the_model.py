"""Studies that use the model, against slow references on the vectors of a small run."""

import math

import numpy as np
import pytest

from benchmarks.papers.studies import distances, negative_overlap, positive_neighbors, score_tail
from benchmarks.papers.studies.studied_run import StudiedRun
from pyserini_ance.data.passages import Passages


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


def test_overlaps_with_the_models_top_negatives_against_rankings_made_one_by_one(studied):
    rows = negative_overlap.study([studied]).rows
    encoder, data = studied.result.encoder, studied.data
    documents = document_vectors(studied)
    positives = data.anchor_sets["query"].known_positives
    anchors = studied.sampled_anchors("study negative-overlap")
    top = {}
    for anchor in anchors.tolist():
        scores = documents @ encoder.encode([data.split.queries[anchor]])[0]
        ranked = np.argsort(-scores, kind="stable").tolist()
        top[anchor] = [row for row in ranked if row not in positives.of(anchor)][:5]

    assert [(row["source"], row["step"]) for row in rows] == [
        ("random", None),
        ("in-batch", None),
        ("query: ann", 4),
        ("query: ann", 6),
        ("query: ann", 8),
    ]
    of_random = np.mean([5 / (30 - len(positives.of(anchor))) for anchor in top])
    assert rows[0]["overlap"] == pytest.approx(of_random)
    own = {anchor: int(positives.of(anchor)[0]) for anchor in top}
    of_batch = [np.mean([own[b] in top[a] for b in top if own[b] != own[a]]) for a in top]
    assert rows[1]["overlap"] == pytest.approx(np.mean(of_batch))
    for row, (_, generation) in zip(rows[2:], studied.generations, strict=True):
        table = generation.tables["query", 0]
        mined = {a: table.candidates[table.positions(np.array([a]))][0, :5].tolist() for a in top}
        assert row["overlap"] == pytest.approx(np.mean([len({*mined[a]} & {*top[a]}) / 5 for a in top]))


@pytest.mark.parametrize("counts", [None, [1, 3, 2, 1, 3]])
def test_a_document_counts_as_its_best_passage(monkeypatch, counts):
    monkeypatch.setattr(score_tail, "DOCUMENTS_PER_BLOCK", 2)
    queries, vectors = np.split(np.random.default_rng(0).normal(size=(13, 4)).astype(np.float32), [3])
    scores = queries @ vectors.T
    if counts:
        scores = np.stack([part.max(1) for part in np.split(scores, np.cumsum(counts)[:-1], axis=1)], axis=1)
    passages = Passages.of_counts(np.array(counts)) if counts else None
    assert score_tail.mean_scores(queries, vectors, passages) == pytest.approx(scores.mean(1), abs=1e-6)


def test_scores_above_the_corpus_mean_against_all_scores(studied):
    findings = score_tail.study([studied])
    encoder, data = studied.result.encoder, studied.data
    documents = document_vectors(studied)
    queries = encoder.encode([data.collection.split("test").queries[row] for row in range(5)])
    scores = -np.sort(-(queries @ documents.T), axis=1)
    above = scores - scores.mean(1, keepdims=True)
    assert len(findings.rows) == 30  # of 50 ranks: there are no more documents
    for row in findings.rows:
        of_rank = above[:, row["rank"] - 1]
        expected = [of_rank.mean(), *np.percentile(of_rank, [10, 90])]
        assert [row["mean"], row["p10"], row["p90"]] == pytest.approx(expected, abs=1e-4)
    assert [row["rank"] for row in findings.summary] == [1, 10]
