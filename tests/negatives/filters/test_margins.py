import numpy as np
import pytest
from helpers.filter_fixture import candidates_of

from pyserini_ance.negatives.filters.absolute_margin import AbsoluteMargin
from pyserini_ance.negatives.filters.relative_margin import RelativeMargin

NAN = float("nan")


def test_absolute_margin():
    scores = [[10, 9.5, 9, 8.9], [3, 2, 1, 0], [-1, -2, -3, -4]]
    found = candidates_of(
        [[0], [0], [0]], np.tile([5, 6, 7, 8], (3, 1)), scores, positive_scores=[10, NAN, -2]
    )
    assert AbsoluteMargin(margin=1).mask(found).tolist() == [
        [True, True, False, False],
        [False] * 4,
        [True, True, False, False],
    ]
    assert AbsoluteMargin(margin=0).mask(found).tolist() == [
        [False] * 4,
        [False] * 4,
        [True, False, False, False],
    ]


def test_relative_margin():
    """95 % of 10 is 9.5; 5 % below -2 is -2.1."""
    scores = [[10, 9.6, 9.5, 9.4], [3, 2, 1, 0], [-1, -2, -2.2, -4]]
    found = candidates_of(
        [[0], [0], [0]], np.tile([5, 6, 7, 8], (3, 1)), np.array(scores), positive_scores=[10, NAN, -2]
    )
    assert RelativeMargin().mask(found).tolist() == [
        [True, True, False, False],
        [False] * 4,
        [True, True, False, False],
    ]
    assert RelativeMargin(margin=0).mask(found).tolist() == [
        [False] * 4,
        [False] * 4,
        [True, False, False, False],
    ]


def test_a_source_without_positive_scores_is_rejected():
    with pytest.raises(ValueError, match="gives positives no score; remove the filter"):
        AbsoluteMargin(margin=1).mask(candidates_of([[0]], [[1]]))
