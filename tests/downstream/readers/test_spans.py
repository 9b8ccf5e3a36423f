import numpy as np
import pytest

from pyserini_ance.downstream.readers.base import NO_ANSWER, Answer, best_answers
from pyserini_ance.downstream.readers.extractive import best_span


def slowly(starts, ends, longest):
    best = None
    for i in range(len(starts)):
        for j in range(i, min(i + longest, len(ends))):
            score = float(starts[i] + ends[j])
            if best is None or score > best[2]:
                best = i, j, score
    return best


@pytest.mark.parametrize("longest", [1, 2, 5, 40])
def test_against_all_pairs(longest):
    rng = np.random.default_rng(longest)
    for tokens in (1, 2, 7, 30):
        for _ in range(20):
            starts, ends = rng.integers(-3, 4, (2, tokens)).astype(np.float32)  # with many ties
            assert best_span(starts, ends, longest) == slowly(starts, ends, longest)


def test_by_hand():
    """The highest end comes before the highest start."""
    assert best_span(np.array([0, 1, 9], np.float32), np.array([9, 2, 0.5], np.float32), 3) == (2, 2, 9.5)
    assert best_span(np.array([5, 0, 0], np.float32), np.array([0, 0, 9], np.float32), 2) == (1, 2, 9)


def test_the_best_of_the_first_passages():
    one, two, three = Answer("a", 1.0, 0), Answer("b", 3.0, 2), Answer("c", 3.0, 3)
    assert best_answers([one, None, two, three], [1, 2, 3, 10]) == [one, one, two, two]
    assert best_answers([None], [1]) == best_answers([], [1]) == [NO_ANSWER]
