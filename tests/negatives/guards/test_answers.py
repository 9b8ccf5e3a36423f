import pytest
from negatives.guards.given import candidates_of

from pyserini_ance.negatives.guards.answers import Answers
from pyserini_ance.negatives.guards.guard import screen
from pyserini_ance.negatives.table import PADDING

DOCUMENTS = ["by Linda Davis", "in 1982, or 1993", "none of it", "LINDA  DAVIS again", "20,320 feet"]
ANSWERS = [["Linda Davis", "Reba"], ["1993"], [], [r"20,?\d+ f(ee|oo)t"]]


def test_documents_with_an_answer_go():
    rows = [[0, 1, 2, 3], [0, 1, 2, PADDING], [0, 1, 2, 3], [4, 0, 1, 2]]
    found = candidates_of([[2]] * 4, rows, documents=DOCUMENTS, answers=ANSWERS)
    assert Answers().mark(found).tolist() == [[True, False, False, True], [False, True, False, False], [False] * 4, [False] * 4]
    assert Answers(regular_expressions=True).mark(found).tolist()[3] == [True, False, False, False]
    candidates, _, dropped = screen(found, [Answers()], 2)
    assert candidates.tolist() == [[1, PADDING], [0, PADDING], [0, 1], [4, 0]]
    assert dropped == {"known positives": 4, "answers": 3}


def test_queries_that_a_document_answers_go():
    found = candidates_of([[0], [1], [2], [4]], [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]], documents=DOCUMENTS, answers=ANSWERS, anchor="document")
    assert Answers().mark(found).tolist() == [[False] * 3] * 4
    found = candidates_of([[2], [3], [2], [2]], [[0, 1, 3], [0, 2, 3]], documents=DOCUMENTS, answers=ANSWERS, anchor="document")
    assert Answers().mark(found).tolist() == [[False] * 3, [True, False, False]]


def test_data_without_answers_is_refused():
    with pytest.raises(ValueError, match=r"guard `answers`: the queries of split 'train' have no answers; give them a list `answers`"):
        Answers().check_data(candidates_of([[2]], [[0]]).direction)
    Answers().check_data(candidates_of([[2]], [[0]], answers=[["f(ee"]]).direction)


def test_malformed_regular_expressions_are_refused():
    direction = candidates_of([[2], [2]], [[0], [0]], answers=[["fine"], ["f(ee"]]).direction
    with pytest.raises(ValueError, match=r"answer 'f\(ee' of query q1 is no regular expression \(missing \)"):
        Answers(regular_expressions=True).check_data(direction)
