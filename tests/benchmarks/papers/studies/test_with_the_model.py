"""Studies that use the model, against slow references on the vectors of a small run."""

import math

import numpy as np
import pytest

from benchmarks.papers.studies import distances, positive_neighbors, recall_frequency, t_sne
from benchmarks.papers.studies.studied_run import StudiedRun, StudySettings


def document_vectors(studied: StudiedRun) -> np.ndarray:
    documents = studied.data.collection.documents
    return studied.result.encoder.encode([documents[row] for row in range(30)], side="document")


def test_the_vectors_are_those_of_the_index_and_equal_what_the_model_encodes(studied, small_run):
    assert "document_vectors" in vars(studied.result) and studied.kept_checkpoints[0] == "initial-00000000"
    assert np.allclose(studied.result.document_vectors[np.arange(30)], document_vectors(studied), atol=1e-5)
    untrained = studied.snapshot("initial-00000000")
    assert "document_vectors" not in vars(untrained)
    assert not np.allclose(untrained.document_vectors[np.arange(30)], document_vectors(studied), atol=1e-3)
    with StudiedRun.open({"run": small_run}, StudySettings()) as [run]:
        scratch = run.scratch
        assert scratch.is_dir()
    assert not scratch.exists()


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


def test_recall_frequency_counts_every_query_and_relevant_document_once(studied):
    rows = recall_frequency.study([studied]).rows
    for side in ("query", "document"):
        for by in ("recall frequency", "detaching distance"):
            own = [row for row in rows if (row["side"], row["by"]) == (side, by)]
            assert sum(row["number"] for row in own) == 5  # test queries, with a positive each
            total = sum(row["number"] * row["nDCG@10"] for row in own if row["number"])
            assert total / 5 == pytest.approx(_mean_ndcg(studied, side), abs=1e-6)


def _mean_ndcg(studied: StudiedRun, side: str) -> float:
    """With one relevant item, nDCG@10 is 1 / log2(1 + rank)."""
    name = "ance.test.trec" if side == "query" else "ance.test.queries.trec"
    test, ids = studied.data.collection.split("test"), studied.data.collection.documents.ids
    positives = test.known_positives("query")
    pairs = [(test.queries.ids[q], ids[int(positives.of(q)[0])]) for q in range(5)]
    wanted = dict(pairs if side == "query" else [pair[::-1] for pair in pairs])
    lines = [line.split() for line in (studied.run.run_files / name).read_text().splitlines()]
    ranks = {line[0]: int(line[3]) for line in lines if line[2] == wanted[line[0]]}
    return sum(1 / math.log2(1 + rank) for rank in ranks.values() if rank <= 10) / 5


def test_t_sne_has_a_point_for_each_text_of_the_query(studied):
    pytest.importorskip("sklearn")
    rows = t_sne.study([studied]).rows
    groups = [row["group"] for row in rows]
    assert groups[0] == "query" and groups.count("relevant") == 1
    assert groups.count("negative of the model") == 10 and groups.count("random") == 19  # of 30 documents
    assert len({row["id"] for row in rows}) == len(rows) == 31
    assert all(math.isfinite(row["x"]) and math.isfinite(row["y"]) for row in rows)
    assert t_sne.study([studied]).rows == rows


def test_t_sne_places_neighbours_together():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    near = np.array([[1.0, 0, 0]]) + 0.01 * rng.standard_normal((10, 3))
    far = np.array([[0, 0, 1.0]]) + 0.01 * rng.standard_normal((10, 3))
    places = t_sne.embed(np.concatenate([near, far]).astype(np.float32), 0)
    spread = np.linalg.norm(places[:10] - places[:10].mean(0), axis=1).max()
    assert np.linalg.norm(places[:10].mean(0) - places[10:].mean(0)) > 2 * spread
