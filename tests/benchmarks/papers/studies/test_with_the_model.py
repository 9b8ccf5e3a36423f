"""Studies that use the model, against slow references on the vectors of a small run."""

from collections import Counter

import numpy as np
import pytest

from benchmarks.papers.studies import distances, negative_overlap, positive_neighbors, score_tail, t_sne
from benchmarks.papers.studies.studied_run import StudiedRun
from pyserini_ance.data.passages import Passages


def document_vectors(studied: StudiedRun) -> np.ndarray:
    documents = studied.data.collection.documents
    return studied.result.encoder.encode([documents[row] for row in range(30)], side="document")


def test_distances_of_all_queries_and_documents_pair_by_pair(studied, monkeypatch):
    monkeypatch.setattr(distances, "DOCUMENTS_PER_BLOCK", 7)
    found = {row["quantity"]: row for row in distances.study([studied]).rows}
    encoder, data = studied.result.encoder, studied.data
    training, test = data.split.queries, data.collection.split("test").queries
    every = [texts[row] for texts in (training, test) for row in range(len(texts))]
    queries = distances.unit(encoder.encode(every))
    documents = distances.unit(document_vectors(studied))
    pairs = {
        "query-query": [queries[i] @ queries[j] for i in range(len(queries)) for j in range(i)],
        "document-document": [documents[i] @ documents[j] for i in range(30) for j in range(i)],
        "query-document": (queries @ documents.T).ravel(),
    }
    for quantity, cosines in pairs.items():
        expected = {"value": 1 - np.mean(cosines), "variance": np.var(cosines)}
        assert {key: found[quantity][key] for key in expected} == pytest.approx(expected, abs=1e-5)
        assert found[quantity]["pairs"] == len(cosines)
    anchors = studied.sampled_anchors("study distances").tolist()
    positives = [int(data.anchor_sets["query"].known_positives.of(anchor)[0]) for anchor in anchors]
    squared = [np.square(queries[q] - documents[p]).sum() for q, p in zip(anchors, positives, strict=True)]
    assert found["alignment"]["value"] == pytest.approx(np.mean(squared), abs=1e-4)
    own = [np.exp(-2 * np.square(queries[i] - queries[j]).sum()) for i in anchors for j in anchors if i < j]
    assert found["uniformity of queries"]["value"] == pytest.approx(np.log(np.mean(own)), abs=1e-4)
    assert found["uniformity of queries"]["pairs"] == len(own) == 45


def test_neighbours_of_the_positive_one_by_one(studied):
    rows = positive_neighbors.study([studied]).rows
    assert [(row["generation"], row["next"]) for row in rows] == [("ance-0", "ance-2"), ("ance-2", "ance-4")]
    known = studied.data.anchor_sets["query"].known_positives
    anchors = studied.sampled_anchors("study positive-neighbors").tolist()
    weights = studied.generations[0][1].weights
    documents = studied.snapshot(studied.checkpoints_by_weights[weights]).document_vectors[np.arange(30)]
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


def ranked_one_by_one(studied: StudiedRun, checkpoint: str) -> list[list[int]]:
    """The first five documents of each test query that are not relevant to it."""
    documents, test = studied.data.collection.documents, studied.data.collection.split("test")
    encoder, known = studied.snapshot(checkpoint).encoder, test.known_positives("query")
    vectors = encoder.encode([documents[row] for row in range(30)], side="document")
    rankings = []
    for anchor in range(len(test.queries)):
        scores = vectors @ encoder.encode([test.queries[anchor]])[0]
        ranked = np.argsort(-scores, kind="stable").tolist()
        rankings.append([row for row in ranked if row not in known.of(anchor)][:5])
    return rankings


def test_overlaps_with_the_model_in_training_against_rankings_made_one_by_one(studied, small_run, tmp_path):
    """Refreshes every two steps from 4 on: the step before 6 trained on the negatives of 4."""
    documents, test = studied.data.collection.documents, studied.data.collection.split("test")
    bm25 = tmp_path / "bm25.trec"
    hits = [(query, rank) for query in test.queries.ids for rank in range(9)]
    bm25.write_text("".join(f"{q} Q0 {documents.ids[rank]} {rank + 1} {9 - rank} t\n" for q, rank in hits))
    vars(studied)["test_queries"] = studied.test_queries._replace(bm25=bm25)
    rows = negative_overlap.study([studied]).rows
    found = {(row["step"], row["source"]): row["overlap"] for row in rows}
    names = ["initial-00000000", "warm-00000004", "ance-00000002", "ance-00000004", "ance-00000006"]
    tops = dict(zip((0, 4, 6, 8, 10), (ranked_one_by_one(studied, name) for name in names), strict=True))
    mined = {6: 4, 8: 6, 10: 8}
    drawn = {(step, source) for step in tops for source in ("random", "in-batch", "BM25")}
    assert found.keys() == {*drawn, *((step, "ANN") for step in mined)}
    known = test.known_positives("query")
    own = [known.of(anchor).tolist() for anchor in range(5)]
    firsts = [positives[0] for positives in own]
    of_bm25 = [[row for row in range(9) if row not in relevant][:5] for relevant in own]
    for step, top in tops.items():
        expected = {
            "random": np.mean([5 / (30 - len(relevant)) for relevant in own]),
            "BM25": np.mean([len({*a} & {*b}) / 5 for a, b in zip(of_bm25, top, strict=True)]),
            "in-batch": np.mean([np.mean([b in top[a] for b in firsts if b != firsts[a]]) for a in range(5)]),
        }
        if step in mined:
            pairs = zip(tops[mined[step]], top, strict=True)
            expected["ANN"] = np.mean([len({*before} & {*now}) / 5 for before, now in pairs])
        assert {source: found[step, source] for source in expected} == pytest.approx(expected)


def test_runs_of_the_same_documents_share_a_picture_with_queries_that_rank(studied, small_run, monkeypatch):
    """The same run twice: its documents once, its query twice; then its queries, in the order of scores."""
    monkeypatch.setattr(t_sne, "QUERIES", 3)
    twin = StudiedRun("twin", small_run, studied.settings)
    monkeypatch.setattr(t_sne, "placed", lambda rows, *_: [{**row, "x": 0.0, "y": 0.0} for row in rows])
    findings = t_sne.study([studied, twin])
    assert len(findings.panels) == 2
    documents = [row for row in findings.rows if row["picture"] == "run, twin"]
    groups = Counter(row["group"] for row in documents)
    assert groups["query: run"] == groups["query: twin"] == groups["relevant"] == 1
    assert groups["negative of the model: run"] == 10 and groups["random"] == 30 - 11
    test = studied.data.collection.split("test")
    relevant = int(test.known_positives("query").of(0)[0])
    queries = studied.result.encoder.encode([test.queries[row] for row in range(5)])
    ranked = np.argsort(-(queries @ document_vectors(studied)[relevant]), kind="stable").tolist()
    others = [row for row in ranked if row not in test.known_positives("document").of(relevant)][:3]
    names = [test.queries.ids[0], studied.data.collection.documents.ids[relevant]]
    expected = [*names, *(test.queries.ids[row] for row in others)]
    assert [row["id"] for row in findings.rows if row["picture"] == "queries"] == 2 * expected


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
