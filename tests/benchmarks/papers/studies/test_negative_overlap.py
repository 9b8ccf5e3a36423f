"""Overlaps with the model's top negatives, against rankings that are made pair by pair."""

import numpy as np
import pytest

from benchmarks.papers.studies.negative_overlap import study


def test_a_run_against_rankings_made_one_by_one(studied):
    rows = study([studied]).rows
    encoder, data = studied.result.encoder, studied.data
    documents = encoder.encode([data.collection.documents[row] for row in range(30)], side="document")
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
