import numpy as np
from helpers.filter_fixture import candidates_of

from pyserini_ance.negatives.filters.max_score import MaxScore


def test_candidates_above_the_score_are_removed_whatever_the_positive_scores():
    scores = np.array([[9.0, 7.5, 7.0], [7.6, 7.4, -3.0]])
    for positives in (None, [100, -100]):
        found = candidates_of([[0], [0]], [[5, 6, 7], [5, 6, 7]], scores, positive_scores=positives)
        assert MaxScore(max_score=7.5).mask(found).tolist() == [[True, False, False], [True, False, False]]
        assert not MaxScore(max_score=9).mask(found).any()
    assert MaxScore(max_score=-4).mask(found).all()
