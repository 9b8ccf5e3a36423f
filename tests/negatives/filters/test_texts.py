from helpers.filter_fixture import apply_filters, candidates_of

from pyserini_ance.negatives.filters.texts import Answers, Duplicates
from pyserini_ance.negatives.filters.training_positives import TrainingPositives
from pyserini_ance.negatives.table import PADDING

DOCUMENTS = ["by Linda Davis", "in 1982, or 1993", "none of it", "LINDA  DAVIS again", "20,320 feet"]
ANSWERS = [["Linda Davis", "Reba"], ["1993"], [], [r"20,?\d+ f(ee|oo)t"]]
TEXTS = ["The apple", "a pear", " the  APPLE\n", "the apples", "Straße", "strasse", "A PEAR", "plum"]


def test_documents_with_an_answer_are_removed():
    rows = [[0, 1, 2, 3], [0, 1, 2, PADDING], [0, 1, 2, 3], [4, 0, 1, 2]]
    found = candidates_of([[2]] * 4, rows, documents=DOCUMENTS, answers=ANSWERS)
    removed = [[0, 3], [1], [], []]
    assert Answers().mask(found).tolist() == [[column in line for column in range(4)] for line in removed]
    candidates, _, dropped = apply_filters(found, [Answers()], 2)
    assert candidates.tolist() == [[1, PADDING], [0, PADDING], [0, 1], [4, 0]]
    assert dropped == {"known positives": 4, "answers": 3}


def test_equal_texts_ignoring_whitespace_and_case():
    rows = [[2, 3, 6, PADDING], [6, 0, 2, 7], [5, 7, 1, 2]]
    found = candidates_of([[0], [1, 7], [4]], rows, documents=TEXTS)
    expected = [[True, False, False], [True, False, False, True], [True, False, False, False]]
    masks = zip(Duplicates().mask(found), expected, strict=True)
    assert [mask[: len(each)].tolist() for mask, each in masks] == expected


def test_candidate_queries_are_compared_with_queries():
    """d0 is relevant to q0 and d1 to q1; q2 has the text of q0 and the positive d2."""
    queries, rows = ["which one?", "which two?", "Which  one?"], [[1, 2], [0, 2], [0, 1]]
    found = candidates_of([[0], [1], [2]], rows, queries=queries, anchor="document")
    assert Duplicates().mask(found).tolist() == [[False, True], [False, False], [True, False]]


def test_a_candidate_stays_if_it_is_a_positive_of_any_query():
    found = candidates_of([[0], [1, 2], [49]], [[1, 5, 49], [0, 3, PADDING], [7, 2, 48]])
    expected = [[False, True, False], [False, True, False], [True, False, True]]
    assert TrainingPositives().mask(found).tolist() == expected
    found = candidates_of([[0], [], [1]], [[1, 2], [0, 1]], anchor="document")
    assert TrainingPositives().mask(found).tolist() == [[True, False], [False, True]]
