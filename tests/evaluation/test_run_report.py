"""Overlap of two runs: by hand, and of real runs against a loop over the lines of their files."""

import pytest
from helpers.slow_measures import ranking_of

from pyserini_ance.data.trec import read_run
from pyserini_ance.evaluation.metrics import means, overlap


def test_overlap_of_the_first_k():
    run = {"q1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}, "q2": {"a": 1.0}, "q3": {"a": 1.0}, "q4": {}}
    other = {"q1": {"d": 9.0, "b": 8.0, "a": 7.0}, "q2": {"b": 2.0, "a": 1.0}, "q4": {"a": 1.0}}
    assert overlap(run, other, ["q1", "q2", "q3", "q4"], 2) == {
        "q1": {"Overlap@2": 0.5},
        "q2": {"Overlap@2": 1.0},
        "q3": {"Overlap@2": 0.0},
    }
    assert overlap(run, other, ["q1"], 4) == {"q1": {"Overlap@4": 0.75}}
    assert overlap(run, run, ["q1"]) == {"q1": {"Overlap@100": 1.0}}


def test_ties_go_as_in_all_measures():
    assert overlap({"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 5.0}}, ["q"], 1) == {"q": {"Overlap@1": 1.0}}


def test_a_run_of_other_queries_is_refused():
    with pytest.raises(ValueError, match="the other run has none of these queries"):
        overlap({"q": {"a": 1.0}}, {"1": {"a": 1.0}}, ["q"])


def test_real_runs_against_a_loop(shared_data):
    folder = shared_data / "msmarco-passage-dl19-pool" / "runs"
    bm25 = folder / "bm25.dl19.top100.trec.gz"
    other, theirs = read_run(bm25), ranking_of(bm25)
    for path in sorted(folder.iterdir()):
        run, ours = read_run(path), ranking_of(path)
        for cutoff in (10, 100):
            expected = sum(
                document in theirs[query][:cutoff] for query in ours for document in ours[query][:cutoff]
            ) / (43 * cutoff)
            assert means(overlap(run, other, run, cutoff)) == {
                f"Overlap@{cutoff}": pytest.approx(expected, abs=1e-12)
            }, path.name
