import numpy as np
import pytest
from helpers.filter_fixture import apply_filters, candidates_of

from pyserini_ance.negatives.filters.ranks_and_scores import (
    AbsoluteMargin,
    MaxScore,
    RangeMax,
    RangeMin,
    RelativeMargin,
)
from pyserini_ance.negatives.filters.texts import Answers

NAN = float("nan")
ROWS = np.tile([5, 6, 7, 8], (3, 1))
NONE = [False] * 4


@pytest.mark.parametrize(
    ("rule", "first", "last"),
    [
        (AbsoluteMargin(margin=1), [True, True, False, False], [True, True, False, False]),
        (AbsoluteMargin(margin=0), NONE, [True, False, False, False]),
        # 95 % of 10 is 9.5; 5 % below -2 is -2.1.
        (RelativeMargin(), [True, True, False, False], [True, True, False, False]),
        (RelativeMargin(margin=0), NONE, [True, False, False, False]),
        # Half of the way from 10 to 8.9 is 9.45, and from -2 to -4 it is -3.
        (RelativeMargin(margin=0.5, origin="lowest"), [True, True, True, False], [True, True, True, False]),
    ],
)
def test_a_margin_is_below_the_positive_and_nothing_without_its_score(rule, first, last):
    scores = np.array([[10, 9.6, 9, 8.9], [3, 2, 1, 0], [-1, -2, -3, -4]])
    if rule.kind == "relative_margin":
        scores[:, 2] = [9.5, 1, -2.2]
    found = candidates_of([[0], [0], [0]], ROWS, scores, positive_scores=[10, NAN, -2])
    assert rule.mask(found).tolist() == [first, NONE, last]


@pytest.mark.parametrize("offset", [0, 0.9, 700, -3])
def test_a_margin_from_the_lowest_score_does_not_depend_on_the_origin_of_the_scores(offset):
    """Of a positive that ranks behind all candidates it removes none; scores of padding do not count."""
    scores = np.tile([0.5, 0.375, 0.25, 0.0], (3, 1)) + offset
    scores[1, 3] = -np.inf
    found = candidates_of([[0]] * 3, ROWS, scores, positive_scores=np.array([0.5, 0.5, -0.125]) + offset)
    mask = RelativeMargin(margin=0.3, origin="lowest").mask(found)
    assert mask.tolist() == [[True, True, False, False], [True, False, False, False], NONE]


@pytest.mark.parametrize(("known", "short"), [(0, 1), (0, 2), (11, 1)])
def test_an_automatic_margin_is_from_the_lowest_score_if_from_zero_many_anchors_keep_few(known, short):
    """Ten anchors: `short` ones keep 3 of 10 candidates, others 8; 11 is the row of one of these."""
    scores = np.tile([0.99, 0.98, *[0.9] * 7, 0.1], (10, 1))
    scores[:short, 2:7] = 0.97
    found = candidates_of([[known]] * 10, np.tile(range(3, 13), (10, 1)), scores, positive_scores=[1] * 10)
    chosen = {} if (known, short) == (0, 1) else {"margin": 0.3, "origin": "lowest"}
    mask, expected = (RelativeMargin(**one).mask(found) for one in ({"margin": "auto"}, chosen))
    assert mask.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="chooses the origin too; remove origin"):
        RelativeMargin(margin="auto", origin="lowest")


def test_candidates_above_the_score_are_removed_whatever_the_positive_scores():
    scores = np.array([[9.0, 7.5, 7.0], [7.6, 7.4, -3.0]])
    for positives in (None, [100, -100]):
        found = candidates_of([[0], [0]], [[5, 6, 7], [5, 6, 7]], scores, positive_scores=positives)
        assert MaxScore(max_score=7.5).mask(found).tolist() == [[True, False, False], [True, False, False]]
        assert not MaxScore(max_score=9).mask(found).any()
    assert MaxScore(max_score=-4).mask(found).all()


def test_positives_count_in_the_ranks_to_remove_and_not_in_those_to_keep():
    found = candidates_of([[1], [9]], [[5, 1, 6, 7], [5, 6, 9, 7]])
    rows, _, dropped = apply_filters(found, [RangeMin(ranks=2)], 3)
    assert rows.tolist() == [[6, 7, -1], [7, -1, -1]] and dropped == {"known positives": 2, "range_min": 3}
    assert RangeMin(ranks=2).extra_candidates == 2
    rows, _, dropped = apply_filters(found, [RangeMax(ranks=2)], 4)
    assert rows.tolist() == [[5, 6, -1, -1], [5, 6, -1, -1]]
    assert dropped == {"known positives": 2, "range_max": 2}


def test_what_answers_removes_is_not_replaced_as_in_the_code_of_ance():
    texts = ["Paris", "a town", "in Paris", "a river", "a sea", "Paris again", "a lake"]
    ranking, positive, examined, wanted = [4, 0, 2, 3, 5, 1, 6], 0, 3, 2
    slowly: list[int] = []  # run_ann_data_gen_dpr.py: neg_cnt grows for every document that is examined
    seen = 0
    for document in ranking:
        if document == positive:
            continue
        if seen >= examined:
            break
        seen += 1
        if "Paris" not in texts[document]:
            slowly.append(document)
    candidates = candidates_of([[positive]], [ranking], documents=texts, answers=[["Paris"]])
    rows, _, _ = apply_filters(candidates, [RangeMax(ranks=examined), Answers()], wanted)
    assert rows.tolist() == [slowly] == [[4, 3]]
    replaced, _, _ = apply_filters(candidates, [Answers()], 4)
    assert replaced.tolist() == [[4, 3, 1, 6]]
