from helpers.filter_fixture import candidates_of

from pyserini_ance.negatives.filters.duplicates import Duplicates
from pyserini_ance.negatives.table import PADDING

DOCUMENTS = ["The apple", "a pear", " the  APPLE\n", "the apples", "Straße", "strasse", "A PEAR", "plum"]


def test_equal_texts_ignoring_whitespace_and_case():
    rows = [[2, 3, 6, PADDING], [6, 0, 2, 7], [5, 7, 1, 2]]
    found = candidates_of([[0], [1, 7], [4]], rows, documents=DOCUMENTS)
    expected = [[True, False, False], [True, False, False, True], [True, False, False, False]]
    masks = zip(Duplicates().mask(found), expected, strict=True)
    assert [mask[: len(each)].tolist() for mask, each in masks] == expected


def test_candidate_queries_are_compared_with_queries():
    """d0 is relevant to q0 and d1 to q1; q2 has the text of q0 and the positive d2."""
    found = candidates_of(
        [[0], [1], [2]],
        [[1, 2], [0, 2], [0, 1]],
        queries=["which one?", "which two?", "Which  one?"],
        anchor="document",
    )
    assert Duplicates().mask(found).tolist() == [[False, True], [False, False], [True, False]]
