import numpy as np
import pytest
from negatives.guards.given import candidates_of

from pyserini_ance.negatives.guards.margin import Margin
from pyserini_ance.negatives.guards.ratio import Ratio

NAN = float("nan")


def test_by_an_absolute_margin():
    scores = [[10, 9.5, 9, 8.9], [3, 2, 1, 0], [-1, -2, -3, -4]]
    found = candidates_of([[0], [0], [0]], np.tile([5, 6, 7, 8], (3, 1)), scores, positive_scores=[10, NAN, -2])
    assert Margin(margin=1).mark(found).tolist() == [[True, True, False, False], [False] * 4, [True, True, False, False]]
    assert Margin(margin=0).mark(found).tolist() == [[False] * 4, [False] * 4, [True, False, False, False]]


def test_by_a_share_of_the_positives_score():
    """95 % of 10 is 9.5; 5 % below -2 is -2.1."""
    scores = [[10, 9.6, 9.5, 9.4], [3, 2, 1, 0], [-1, -2, -2.2, -4]]
    found = candidates_of([[0], [0], [0]], np.tile([5, 6, 7, 8], (3, 1)), np.array(scores), positive_scores=[10, NAN, -2])
    assert Ratio().mark(found).tolist() == [[True, True, False, False], [False] * 4, [True, True, False, False]]
    assert Ratio(ratio=1).mark(found).tolist() == [[False] * 4, [False] * 4, [True, False, False, False]]


def test_a_source_without_scores_of_positives_is_refused():
    with pytest.raises(ValueError, match="gives positives no score; leave the guard out"):
        Margin(margin=1).mark(candidates_of([[0]], [[1]]))
