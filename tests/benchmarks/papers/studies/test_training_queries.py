"""Studies of training queries by the kept checkpoints: what each retrieves, and the negatives that swing."""

import math

import numpy as np
import pytest

from benchmarks.papers.studies import negative_swing, training_retrieval
from benchmarks.papers.studies.negative_swing import Case, case_of, swinging
from benchmarks.papers.studies.studied_run import StudiedRun
from pyserini_ance.negatives.table import NegativeTable

# As in the paper's Table 10: 1 and 2 are in generations 0, 2 and 4; 3 in 1 and 3; 4 stays, 5 is seen before.
GENERATIONS = [[1, 2, 4, 5], [3, 4], [2, 1, 4, 6], [5, 4, 3], [4, 1]]


def test_each_checkpoint_ranks_as_its_own_vectors_do_one_by_one(studied, tmp_path):
    """RR@10, R@5 and overlaps, worked out from the scores of each checkpoint; BM25 ranks 0 to 4 for all."""
    documents, queries = studied.data.collection.documents, studied.data.split.queries
    run_file = tmp_path / "bm25.trec"
    lines = (f"{q} Q0 {documents.ids[d]} {d + 1} {9 - d} t\n" for q in queries.ids for d in range(5))
    run_file.write_text("".join(lines))
    vars(studied)["training_queries"] = studied.training_queries._replace(bm25=run_file)
    rows = training_retrieval.study([studied]).rows
    # The stages' first checkpoints equal those before them, and are counted once.
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows}) and rows[0]["step"] == 0
    later = [f"ance-0000000{step}" for step in (2, 4, 6)]
    assert [row["checkpoint"] for row in rows] == ["initial-00000000", "warm-00000004", *later]
    known = studied.data.anchor_sets["query"].known_positives
    anchors = studied.sampled_anchors("study training-retrieval").tolist()
    before: list[set[int]] = []
    for row in rows:
        encoder = studied.snapshot(row["checkpoint"]).encoder
        vectors = encoder.encode([documents[d] for d in range(30)], side="document")
        of_queries = encoder.encode([queries[anchor] for anchor in anchors])
        top = [np.argsort(-(vectors @ query), kind="stable")[:5].tolist() for query in of_queries]
        pairs = zip(top, anchors, strict=True)
        ranks = [[place + 1 for place, d in enumerate(own) if d in known.of(anchor)] for own, anchor in pairs]
        assert row["RR@10"] == pytest.approx(np.mean([1 / own[0] if own else 0.0 for own in ranks]))
        shares = [len(own) / len(known.of(anchor)) for own, anchor in zip(ranks, anchors, strict=True)]
        assert row["R@5"] == pytest.approx(np.mean(shares))
        assert row["BM25 overlap@5"] == pytest.approx(np.mean([sum(d < 5 for d in own) / 5 for own in top]))
        last = [len(now & then) / 5 for now, then in zip(map(set, top), before or [], strict=bool(before))]
        found = row["overlap@5 with the checkpoint before"]
        assert found == (pytest.approx(np.mean(last)) if before else None)
        before = [set(own) for own in top]
    del vars(studied)["training_queries"]
    assert "BM25 overlap@5" not in training_retrieval.study([studied]).rows[0]


def test_negatives_swing_if_one_generation_lacks_them_and_the_next_has_them_again():
    assert swinging(GENERATIONS) == [[1, 2], [3], []]
    assert swinging([[1], [2], [3]]) == [[]] and swinging([[1], [2]]) == []
    assert swinging([[1, 1], [2], [1]]) == [[1]]


def test_the_clearest_case_has_two_large_classes():
    assert case_of(7, GENERATIONS) == Case(7, 0, ([1, 2], [3]))
    assert case_of(7, [[1], [2], [1]]) == Case(7, 0, ([1], []))
    assert case_of(7, [[1], [1], [1]]) is None
    cases = [Case(0, 0, ([1, 2, 3], [])), Case(1, 0, ([1], [2])), Case(2, 1, ([1, 2], [3, 4]))]
    assert [case.query for case in sorted(cases, key=lambda case: case.rank)] == [2, 1, 0]


def test_a_case_has_its_texts_scores_and_places(studied, monkeypatch):
    """The small run, whose three generations are those of a query that swings, for all its queries."""
    pytest.importorskip("sklearn")
    anchors = studied.data.anchor_sets["query"].known_positives.anchors

    def in_use(run):
        swing = [[21, 22], [23, 27], [21, 23]]
        for (_, generation), documents in zip(studied.generations, swing, strict=True):
            rows = np.tile(np.array(documents, np.int32), (len(anchors), 1))
            table = NegativeTable("query", "document", anchors, rows, np.zeros(rows.shape, np.float32), "ann")
            yield f"ance-{generation.step}", 4 + generation.step, {("query", 0): table}

    monkeypatch.setattr(StudiedRun, "tables_in_use", property(in_use))
    assert not np.isin([21, 22, 23, 27], studied.data.anchor_sets["query"].known_positives.rows).any()
    findings = negative_swing.study([studied])
    documents, queries = studied.data.collection.documents, studied.data.split.queries
    cases = [row for row in findings.rows if "text" in row]
    assert [(row["class"], row["id"]) for row in cases] == [("class A", documents.ids[21])] * 8
    assert cases[0]["generations"] == ["ance-0", "ance-4"]
    anchor = int(studied.sampled_anchors("study negative-swing")[0])
    assert cases[0]["query"] == queries.ids[anchor] == findings.summary[0]["query"]
    assert findings.summary[0]["class A"].startswith("1: ") and findings.summary[0]["class B"] == ""
    assert findings.notes == ["run: 10 of 10 training queries swing, 0 with both classes"]

    points = [row for row in findings.rows if "x" in row]
    groups = [row["class"] for row in points if row["step"] == 4]
    relevant = ["relevant"] * len(studied.data.anchor_sets["query"].known_positives.of(anchor))
    assert groups == ["query", *relevant, "class A", "other negative"]
    weights = {f"ance-{of.step}": of.weights for _, of in studied.generations}
    for row in points:
        assert math.isfinite(row["x"]) and math.isfinite(row["y"])
        if row["class"] == "query":
            continue
        of_generation = weights[row["generation"]]
        encoder = studied.snapshot(studied.checkpoints_by_weights[of_generation]).encoder
        document = encoder.encode([documents[documents.rows[row["id"]]]], side="document")[0]
        assert row["score"] == pytest.approx(float(encoder.encode([queries[anchor]])[0] @ document), abs=1e-4)
    titles = [panel.title for panel in findings.panels]
    mined = ["ance-0", "ance-2", "ance-4"]
    assert titles == ["The query's negatives", "By the model of each generation", *mined]
