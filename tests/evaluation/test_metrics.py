import gzip
import math
import shutil
from pathlib import Path

import pytest

from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.evaluation.metrics import LATENCY, evaluate, holes, latency, means, overlap, per_query
from pyserini_ance.recipe.evaluation_settings import parse_measures

# Ranked d2, d1, d3, d4: gains 0, 2, 1, 0. d5 (grade 1) is not found.
QRELS = {"q1": {"d1": 2, "d3": 1, "d4": 0, "d5": 1}}
RUN = {"q1": {"d1": 8.0, "d2": 9.0, "d3": 7.0, "d4": 1.0}}
DCG = 2 / math.log2(3) + 1 / math.log2(4)
IDEAL = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
VALUES = {"nDCG@10": DCG / IDEAL, "nDCG@2": (2 / math.log2(3)) / (2 + 1 / math.log2(3))}
VALUES |= {"RR": 1 / 2, "RR@10": 1 / 2, "RR@1": 0.0, "MRR@10": 1 / 2, "R@2": 1 / 3, "R@100": 2 / 3}
VALUES |= {"P@4": 2 / 4, "P(rel=2)@4": 1 / 4, "AP": (1 / 2 + 2 / 3) / 3, "Success@1": 0.0}
VALUES |= {"Judged@4": 3 / 4, "IPrec@0.0": 2 / 3}


@pytest.mark.parametrize("name, value", VALUES.items())
def test_measure_equals_the_hand_computed_value(name, value):
    assert list(evaluate(QRELS, RUN, parse_measures([name])).values()) == [pytest.approx(value, abs=1e-12)]


def test_every_judged_query_counts_and_no_other():
    qrels = {"q1": {"d1": 1}, "q2": {"d2": 1}, "q3": {"d3": 1}, "q4": {"d4": 1}}
    run = {"q1": {"d1": 1.0}, "q3": {"d9": 1.0, "d3": 0.5}, "q4": {}, "unjudged": {"d1": 1.0}}
    measures = parse_measures(["RR@10", "R@100", "Judged@1"])
    assert per_query(qrels, run, measures) == {
        "q1": {"RR@10": 1.0, "R@100": 1.0, "Judged@1": 1.0},
        "q2": {"RR@10": 0.0, "R@100": 0.0, "Judged@1": 0.0},
        "q3": {"RR@10": 0.5, "R@100": 1.0, "Judged@1": 0.0},
        "q4": {"RR@10": 0.0, "R@100": 0.0, "Judged@1": 0.0},
    }
    assert evaluate(qrels, run, measures) == {"RR@10": 1.5 / 4, "R@100": 2 / 4, "Judged@1": 1 / 4}


@pytest.mark.skipif(shutil.which("perl") is None, reason="ERR is computed by a perl script")
@pytest.mark.parametrize("document", ["d1", "", "two words", "two\nlines", "\udce9"])
def test_ids_are_only_names(document):
    """gdeval.pl would read both queries as topic 2, and lines with such documents not at all: ERR is
    (2^1 - 1)/16 at rank 2, and (2^2 - 1)/16 at rank 1."""
    qrels = {"PLAIN-2": {document: 1}, "MED-2": {document: 2}}
    run = {"PLAIN-2": {document: 1.0, "d2": 2.0}, "MED-2": {document: 1.0}}
    found = per_query(qrels, run, parse_measures(["ERR@20"]))
    assert found == {"PLAIN-2": {"ERR@20": 1 / 32}, "MED-2": {"ERR@20": 3 / 16}}


@pytest.mark.parametrize("name", ["ERR@10", "nDCG(dcg='exp-log2')@10"])
def test_a_grade_that_a_measure_does_not_take_is_named_with_the_measure(name):
    with pytest.raises(ValueError, match=r"@10 takes grades up to 4, but query 'q1' has grade 5"):
        evaluate({"q0": {"d1": 4}, "q1": {"d1": 5}}, RUN, parse_measures(["RR@10", name]))


def test_a_query_whose_grades_are_all_below_zero_counts_as_zero():
    qrels = {"q1": {"d1": 1}, "q2": {"d3": -2, "d4": -3}, "q3": {"d1": -1, "d2": -2}}
    measures = parse_measures(["nDCG@10", "AP", "Bpref", "RR@10", "Judged@10"])
    found = per_query(qrels, {query: {"d1": 2.0, "d3": 1.0} for query in qrels}, measures)
    assert [*found["q2"].values()] == [0, 0, 0, 0, 1 / 2] and found["q1"]["nDCG@10"] == 1


def test_counting_measures_are_summed():
    qrels = {"q1": {"d1": 1}, "q2": {"d2": 1}}
    run = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 1.0}}
    assert evaluate(qrels, run, parse_measures(["NumRet"])) == {"NumRet": 3.0}


@pytest.mark.parametrize("scores", [{"d1": 2, "d2": 2}, {"d2": 2, "d1": 2}, {"d1": 300.00001, "d2": 300.0}])
def test_ties_break_alike_for_every_measure(scores):
    """trec_eval compares float32 scores and puts the larger id first: d2, d1, in any order of the file."""
    values = evaluate({"q1": {"d1": 1}}, {"q1": scores}, parse_measures(["RR", "RR@10", "nDCG@10", "AP"]))
    assert values == {"RR": 0.5, "RR@10": 0.5, "nDCG@10": pytest.approx(1 / math.log2(3)), "AP": 0.5}


def test_a_run_of_other_queries_is_refused_and_one_without_hits_scores_zero():
    measures = parse_measures(["nDCG@10"])
    assert evaluate(QRELS, {"q1": {}}, measures) == evaluate(QRELS, {}, measures) == {"nDCG@10": 0.0}
    message = "no query of the run is judged: the run has '1', '2', the qrels have 'q1'; pass the qrels"
    with pytest.raises(ValueError, match=message):
        evaluate(QRELS, {"1": {"d1": 1.0}, "2": {"d1": 1.0}}, parse_measures(["RR"]))
    assert holes({"q1": {"d1": 1}}, {"q1": {}}, [10]) == {}
    with pytest.raises(ValueError, match="the other run has none of these queries"):
        overlap({"q": {"a": 1.0}}, {"1": {"a": 1.0}}, ["q"])


def test_a_grade_of_0_is_judged_and_short_rankings_count_all_hits():
    qrels = {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": 1}, "q3": {"d1": 1}}
    run = {"q1": {"d1": 4.0, "d9": 3.0, "d2": 2.0, "d8": 1.0}, "q2": {"d9": 1.0}, "q3": {}, "x": {"d1": 1.0}}
    found = {query: [*of.values()] for query, of in holes(qrels, run, [1, 3, 10]).items()}
    assert found == {"q1": [0.0, pytest.approx(1 / 3), 0.5], "q2": [1.0, 1.0, 1.0]}


def ranking_of(path: Path) -> dict[str, list[str]]:
    """Reads a run file without code of the package: the documents of each query by score, ties by descending
    id as in trec_eval. RepLLaMA's scores have three decimals and many ties."""
    rows = [line.split() for line in gzip.open(path, "rt")]
    ranking: dict[str, list[str]] = {}
    for query, _, document, *_ in sorted(rows, key=lambda of: (float(of[4]), of[2]), reverse=True):
        ranking.setdefault(query, []).append(document)
    return ranking


def test_the_holes_of_real_runs_against_a_loop(shared_data):
    folder = shared_data / "msmarco-passage-dl19-pool"
    lines = (folder / "qrels.dl19-passage.txt").read_text().splitlines()
    judged = {(line.split()[0], line.split()[2]) for line in lines}
    qrels = read_qrels(folder / "qrels.dl19-passage.txt")
    for path in sorted((folder / "runs").iterdir()):
        ranking, expected = ranking_of(path), {}
        for cutoff in (10, 100):
            pairs = [(query, document) for query in ranking for document in ranking[query][:cutoff]]
            unjudged = [pair not in judged for pair in pairs]
            assert len(unjudged) == 43 * cutoff
            expected[f"Hole@{cutoff}"] = pytest.approx(sum(unjudged) / len(unjudged), abs=1e-12)
        assert means(holes(qrels, read_run(path), [10, 100])) == expected, path.name


def test_by_hand():
    found = latency([float(i) for i in range(1, 102)])
    assert tuple(found) == LATENCY == ("mean ms", "50% ms", "95% ms", "99% ms")
    assert list(found.values()) == pytest.approx([51, 51, 96, 100])


def test_overlap_of_the_first_k():
    run = {"q1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}, "q2": {"a": 1.0}, "q3": {"a": 1.0}, "q4": {}}
    other = {"q1": {"d": 9.0, "b": 8.0, "a": 7.0}, "q2": {"b": 2.0, "a": 1.0}, "q4": {"a": 1.0}}
    found = overlap(run, other, ["q1", "q2", "q3", "q4"], 2)
    assert found == {query: {"Overlap@2": n} for query, n in {"q1": 0.5, "q2": 1.0, "q3": 0.0}.items()}
    assert overlap(run, other, ["q1"], 4) == {"q1": {"Overlap@4": 0.75}}
    assert overlap(run, run, ["q1"]) == {"q1": {"Overlap@100": 1.0}}
    assert overlap({"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 5.0}}, ["q"], 1) == {"q": {"Overlap@1": 1.0}}


def test_the_overlap_of_real_runs_against_a_loop(shared_data):
    folder = shared_data / "msmarco-passage-dl19-pool" / "runs"
    bm25 = folder / "bm25.dl19.top100.trec.gz"
    other, theirs = read_run(bm25), ranking_of(bm25)
    for path in sorted(folder.iterdir()):
        run, ours = read_run(path), ranking_of(path)
        for cutoff in (10, 100):
            common = (set(theirs[query][:cutoff]) & set(ours[query][:cutoff]) for query in ours)
            expected = sum(map(len, common)) / (43 * cutoff)
            found = means(overlap(run, other, run, cutoff))
            assert found == {f"Overlap@{cutoff}": pytest.approx(expected, abs=1e-12)}, path.name
