"""Coverage by hand; against Pyserini's own program: tests/pyserini_bridge/test_coverage.py."""

import json

import pytest

from pyserini_ance.data import answer_matching
from pyserini_ance.data.collection import Texts
from pyserini_ance.evaluation.answer_measures import coverage, judge_by_answers

TEXTS = ["by Linda Davis", "in 1982, or 1993", "none of it", "LINDA  DAVIS\nagain", "20,320 feet"]
DOCUMENTS = Texts([f"d{i}" for i in range(5)], {"title": ["1993"] * 5, "text": TEXTS})
RUN = {
    "q0": {"d2": 5.0, "d1": 4.0, "d3": 3.0, "d4": 2.0, "d0": 1.0},
    "q1": {"d0": 5.0, "d1": 5.0, "d2": 1.0},  # a tie: trec_eval puts the larger id first
    "q2": {"d0": 1.0, "d1": 0.5},
    "other": {"absent": 1.0},
}


def questions(*answers: list[str]) -> Texts:
    columns = {"text": ["?"] * len(answers), "answers": [json.dumps(one) for one in answers]}
    return Texts([f"q{i}" for i in range(len(answers))], columns)


def test_documents_are_judged_by_their_text_without_titles():
    found = judge_by_answers(RUN, questions(["Linda Davis", "Reba"], ["1993"], [], ["1993"]), DOCUMENTS, 4)
    assert found["q0"] == {"d2": 0, "d1": 0, "d3": 1, "d4": 0} and found["q1"] == {"d1": 1, "d0": 0, "d2": 0}
    assert found["q2"] == {"d0": 0, "d1": 0} and found["q3"] == {} and len(found) == 4


def test_coverage_counts_every_question():
    """q0 has its answer at rank 3, q1 at rank 1, q2 nowhere, q3 has no hits."""
    asked = questions(["Davis again"], ["1993"], ["nowhere"], ["1993"])
    shares = {1: 0.25, 2: 0.25, 3: 0.5, 5: 0.5}
    assert coverage(RUN, asked, DOCUMENTS, [*shares]) == {f"Success@{k}": of for k, of in shares.items()}


def test_malformed_regular_expressions_are_passed_over_and_named(caplog):
    asked = questions([r"linda\s+d"], [r"Sn\ežka", r"19[89]3"], ["f(ee"])
    found = coverage(RUN, asked, DOCUMENTS, [1, 5], regular_expressions=True)
    assert found == {"Success@1": 1 / 3, "Success@5": 2 / 3}
    assert [record.args[:2] for record in caplog.records] == [(r"Sn\ežka", "q1"), ("f(ee", "q2")]


def test_patterns_that_do_not_end_match_nothing_and_are_named(caplog, monkeypatch):
    """The pattern matches d0 at once, and never ends on the others."""
    monkeypatch.setattr(answer_matching, "SECONDS", 0.01)
    documents = Texts(["d0", "d1", "d2"], {"text": ["aabb", "a" * 5000 + "c", "a" * 6000 + "c"]})
    run = {"q0": {"d0": 3.0, "d1": 2.0, "d2": 1.0}}
    grades = judge_by_answers(run, questions([r"(a|a|b)+\1$", "a{6000}"]), documents, 3, True)
    assert grades == {"q0": {"d0": 0, "d1": 0, "d2": 1}}
    assert [record.args[:2] for record in caplog.records] == [(r"(a|a|b)+\1$", "q0")]


def test_texts_that_cannot_be_judged_are_rejected():
    with pytest.raises(ValueError, match="the run has document 'absent', which the collection lacks"):
        judge_by_answers({"q0": {"absent": 1.0}}, questions(["x"]), DOCUMENTS, 5)
    with pytest.raises(ValueError, match="these questions have no answers"):
        judge_by_answers(RUN, Texts(["q0"], {"text": ["?"]}), DOCUMENTS, 5)
    with pytest.raises(ValueError, match="in the field 'text', but documents have body"):
        judge_by_answers(RUN, questions(["x"]), Texts(DOCUMENTS.ids, {"body": DOCUMENTS.ids}), 5)
    with pytest.raises(ValueError, match="at most 2 hits a question, so Success@3 would be too low"):
        coverage({"q0": {"d0": 2.0, "d1": 1.0}}, questions(["x"]), DOCUMENTS, [1, 3])
    with pytest.raises(ValueError, match="no query of the run is judged"):
        coverage({"1": {"d0": 2.0, "d1": 1.0}}, questions(["x"]), DOCUMENTS, [1])
