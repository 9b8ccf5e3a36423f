"""Hole rates: by hand, and of real runs against a loop over the lines of their files."""

import pytest
from helpers.slow_measures import ranking_of

from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.evaluation.metrics import holes, means


def test_a_grade_of_0_is_judged_and_short_rankings_count_all_hits():
    qrels = {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": 1}, "q3": {"d1": 1}}
    run = {
        "q1": {"d1": 4.0, "d9": 3.0, "d2": 2.0, "d8": 1.0},
        "q2": {"d9": 1.0},
        "q3": {},
        "unjudged": {"d1": 1.0},
    }
    assert holes(qrels, run, [1, 3, 10]) == {
        "q1": {"Hole@1": 0.0, "Hole@3": pytest.approx(1 / 3), "Hole@10": 0.5},
        "q2": {"Hole@1": 1.0, "Hole@3": 1.0, "Hole@10": 1.0},
    }


def test_a_run_without_hits_has_no_hole_rate_and_one_of_other_queries_is_refused():
    assert holes({"q1": {"d1": 1}}, {"q1": {}}, [10]) == {}
    with pytest.raises(ValueError, match="no query of the run is judged"):
        holes({"q1": {"d1": 1}}, {"1": {"d1": 1.0}}, [10])


def test_real_runs_against_a_loop(shared_data):
    folder = shared_data / "msmarco-passage-dl19-pool"
    lines = (folder / "qrels.dl19-passage.txt").read_text().splitlines()
    judged = {(line.split()[0], line.split()[2]) for line in lines}
    qrels = read_qrels(folder / "qrels.dl19-passage.txt")
    for path in sorted((folder / "runs").iterdir()):
        ranking, expected = ranking_of(path), {}
        for cutoff in (10, 100):
            unjudged = [
                (query, document) not in judged for query in ranking for document in ranking[query][:cutoff]
            ]
            assert len(unjudged) == 43 * cutoff
            expected[f"Hole@{cutoff}"] = pytest.approx(sum(unjudged) / len(unjudged), abs=1e-12)
        assert means(holes(qrels, read_run(path), [10, 100])) == expected, path.name
