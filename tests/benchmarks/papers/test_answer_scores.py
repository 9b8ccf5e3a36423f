"""Exact match and F1 by hand."""

import pytest

from benchmarks.papers.answer_scores import exact_match, f1, measure_answers, normalized

NORMALIZED = [("The Denver  Broncos!", "denver broncos"), ("a U.S. state", "us state"), ("the", ""), ("", "")]
NORMALIZED += [("an  apple a day", "apple day"), ("theatre another", "theatre another")]
NORMALIZED += [("well-known", "wellknown"), ("Saint-Émile\n1,993", "saintémile 1993")]
NORMALIZED += [("“the” cat", "“ ” cat")]  # only ASCII punctuation goes
NORMALIZED += [("the-a", "thea")]  # punctuation goes first, so that no article is left
EXACT = [("the Denver Broncos", ["Carolina Panthers", "Denver Broncos."], 1), ("x", [], 0)]
EXACT += [("Denver", ["Denver Broncos"], 0), ("The", ["an"], 1)]  # the last two are blank
SCORES = [
    ("Denver Broncos", ["Denver Broncos"], 1),
    ("the Denver Broncos team", ["Denver Broncos"], 2 * (2 / 3) * 1 / (2 / 3 + 1)),
    ("new new york", ["new york"], 2 * (2 / 3) * 1 / (2 / 3 + 1)),  # a word counts as often as both have it
    ("york", ["new york city", "york pie"], 2 * 1 * 0.5 / 1.5),
    ("blue", ["red"], 0),
    ("The", ["an"], 0),  # two blank answers: version 1.1 finds no word in common
    ("x", [], 0),
]


def test_answers_are_normalized_and_compared():
    assert [(answer, normalized(answer)) for answer, _ in NORMALIZED] == NORMALIZED
    for prediction, answers, expected in EXACT:
        assert exact_match(prediction, answers) == expected, prediction
    for prediction, answers, expected in SCORES:
        assert f1(prediction, answers) == pytest.approx(expected), prediction


def test_means_over_all_questions():
    gold = {"0": ["Denver Broncos"], "1": ["red"], "2": ["blue"], "3": ["green"]}
    predictions = {"0": "the broncos", "1": "Red.", "elsewhere": "x"}
    assert measure_answers(predictions, gold) == {"EM": 1 / 4, "F1": pytest.approx((2 / 3 + 1) / 4)}
    assert measure_answers({"0": "Denver"}, {"0": ["den.er$"]}, regular_expressions=True) == {"EM": 1}
