"""Scores by rank above the corpus mean, against all scores of a small run."""

import numpy as np
import pytest

from benchmarks.papers.studies.score_tail import study


def test_a_run_against_all_scores(studied):
    findings = study([studied])
    encoder, data = studied.result.encoder, studied.data
    documents = encoder.encode([data.collection.documents[row] for row in range(30)], side="document")
    queries = encoder.encode([data.collection.split("test").queries[row] for row in range(5)])
    scores = -np.sort(-(queries @ documents.T), axis=1)
    above = scores - scores.mean(1, keepdims=True)
    assert len(findings.rows) == 30  # of 50 ranks: there are no more documents
    for row in findings.rows:
        of_rank = above[:, row["rank"] - 1]
        expected = [of_rank.mean(), *np.percentile(of_rank, [10, 90])]
        assert [row["mean"], row["p10"], row["p90"]] == pytest.approx(expected, abs=1e-4)
    assert [row["rank"] for row in findings.summary] == [1, 10]
