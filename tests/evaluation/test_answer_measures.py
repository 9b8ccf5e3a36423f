"""Coverage by hand; against Pyserini's own program: tests/pyserini_bridge/test_coverage.py."""

import json

import pytest

from pyserini_ance.data.collection import Texts
from pyserini_ance.evaluation.answer_measures import (
    coverage,
    exact_match,
    f1,
    judge_by_answers,
    measure_answers,
    normalized,
    pattern_match,
)

TEXTS = ["by Linda Davis", "in 1982, or 1993", "none of it", "LINDA  DAVIS again", "20,320 feet"]
DOCUMENTS = Texts([f"d{i}" for i in range(5)], {"title": ["1993"] * 5, "text": TEXTS})
RUN = {
    "q0": {"d2": 5.0, "d1": 4.0, "d3": 3.0, "d4": 2.0, "d0": 1.0},
    "q1": {"d0": 5.0, "d1": 5.0, "d2": 1.0},  # a tie: trec_eval puts the larger id first
    "q2": {"d0": 1.0, "d1": 0.5},
    "other": {"absent": 1.0},
}


def questions(*answers: list[str]) -> Texts:
    return Texts(
        [f"q{i}" for i in range(len(answers))],
        {"text": ["?"] * len(answers), "answers": [json.dumps(one) for one in answers]},
    )


def test_documents_are_judged_by_their_text_without_titles():
    asked = questions(["Linda Davis", "Reba"], ["1993"], [], ["1993"])
    assert judge_by_answers(RUN, asked, DOCUMENTS, 4) == {
        "q0": {"d2": 0, "d1": 0, "d3": 1, "d4": 0},
        "q1": {"d1": 1, "d0": 0, "d2": 0},
        "q2": {"d0": 0, "d1": 0},
        "q3": {},
    }


def test_only_the_first_line_of_a_text_is_judged():
    """tests/pyserini_bridge/test_coverage.py: as Pyserini does."""
    documents = Texts(["d0", "d1"], {"text": ["by Linda\nDavis, 1993", "Davis\n"]})
    asked = questions(["Linda Davis"], ["1993"], ["Linda"], ["Davis"])
    found = judge_by_answers({f"q{i}": {"d0": 2.0, "d1": 1.0} for i in range(4)}, asked, documents, 2)
    assert [list(grades.values()) for grades in found.values()] == [[0, 0], [0, 0], [1, 0], [0, 1]]


def test_coverage_counts_every_question():
    """q0 has its answer at rank 3, q1 at rank 1, q2 nowhere, q3 has no hits."""
    asked = questions(["Linda Davis"], ["1993"], ["nowhere"], ["1993"])
    assert coverage(RUN, asked, DOCUMENTS, [1, 2, 3, 5]) == {
        "Success@1": 0.25,
        "Success@2": 0.25,
        "Success@3": 0.5,
        "Success@5": 0.5,
    }


def test_malformed_regular_expressions_are_passed_over_and_named(caplog):
    asked = questions([r"linda\s+d"], [r"Sn\ežka", r"19[89]3"], ["f(ee"])
    assert coverage(RUN, asked, DOCUMENTS, [1, 5], regular_expressions=True) == {
        "Success@1": 1 / 3,
        "Success@5": 2 / 3,
    }
    assert [record.args for record in caplog.records] == [(r"Sn\ežka", "q1"), ("f(ee", "q2")]


def test_texts_that_cannot_be_judged_are_rejected():
    with pytest.raises(ValueError, match="the run has document 'absent', which the collection lacks"):
        judge_by_answers({"q0": {"absent": 1.0}}, questions(["x"]), DOCUMENTS, 5)
    with pytest.raises(ValueError, match="these questions have no answers"):
        judge_by_answers(RUN, Texts(["q0"], {"text": ["?"]}), DOCUMENTS, 5)
    with pytest.raises(ValueError, match="in the field 'text', but documents have body"):
        judge_by_answers(RUN, questions(["x"]), Texts(["d"], {"body": ["x"]}), 5)
    with pytest.raises(ValueError, match="at most 2 hits a question, so Success@3 would be too low"):
        coverage({"q0": {"d0": 2.0, "d1": 1.0}}, questions(["x"]), DOCUMENTS, [1, 3])
    with pytest.raises(ValueError, match="no query of the run is judged"):
        coverage({"1": {"d0": 2.0, "d1": 1.0}}, questions(["x"]), DOCUMENTS, [1])


NORMALIZED = [
    ("The Denver  Broncos!", "denver broncos"),
    ("a U.S. state", "us state"),
    ("an  apple a day", "apple day"),
    ("theatre another", "theatre another"),
    ("well-known", "wellknown"),
    ("the", ""),
    ("“the” cat", "“ ” cat"),  # only ASCII punctuation goes
    ("Saint-Émile\n1,993", "saintémile 1993"),
    ("the-a", "thea"),  # punctuation goes first, so that no article is left
    ("", ""),
]
EXACT = [
    ("the Denver Broncos", ["Carolina Panthers", "Denver Broncos."], 1),
    ("Denver", ["Denver Broncos"], 0),
    ("The", ["an"], 1),  # both are blank
    ("x", [], 0),
]
SCORES = [
    ("Denver Broncos", ["Denver Broncos"], 1),
    ("the Denver Broncos team", ["Denver Broncos"], 2 * (2 / 3) * 1 / (2 / 3 + 1)),
    ("new new york", ["new york"], 2 * (2 / 3) * 1 / (2 / 3 + 1)),  # a word counts as often as both have it
    ("york", ["new york city", "york pie"], 2 * 1 * 0.5 / 1.5),
    ("blue", ["red"], 0),
    ("The", ["an"], 0),  # two blank answers: version 1.1 finds no word in common
    ("x", [], 0),
]


@pytest.mark.parametrize(("answer", "expected"), NORMALIZED)
def test_normalized(answer, expected):
    assert normalized(answer) == expected


@pytest.mark.parametrize(("prediction", "answers", "expected"), EXACT)
def test_exact_match(prediction, answers, expected):
    assert exact_match(prediction, answers) == expected


@pytest.mark.parametrize(("prediction", "answers", "expected"), SCORES)
def test_f1(prediction, answers, expected):
    assert f1(prediction, answers) == pytest.approx(expected)


def test_regular_expressions_match_from_the_start():
    assert pattern_match("20,320 feet", [r"20,?\d{3} f(ee|oo)t"]) == 1
    assert pattern_match("about 20,320 feet", [r"20,?\d{3}"]) == 0
    assert pattern_match("MOUNT McKinley", ["denali", "mount"]) == 1
    assert pattern_match("f(ee", ["f(ee"]) == 0


def test_means_over_all_questions():
    gold = {"0": ["Denver Broncos"], "1": ["red"], "2": ["blue"], "3": ["green"]}
    predictions = {"0": "the broncos", "1": "Red.", "elsewhere": "x"}
    assert measure_answers(predictions, gold) == {"EM": 1 / 4, "F1": pytest.approx((2 / 3 + 1) / 4)}
    assert measure_answers({"0": "Denver"}, {"0": ["den.er$"]}, regular_expressions=True) == {"EM": 1}
