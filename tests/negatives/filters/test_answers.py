from helpers.filter_fixture import apply_filters, candidates_of

from pyserini_ance.negatives.filters.answers import Answers
from pyserini_ance.negatives.table import PADDING

DOCUMENTS = ["by Linda Davis", "in 1982, or 1993", "none of it", "LINDA  DAVIS again", "20,320 feet"]
ANSWERS = [["Linda Davis", "Reba"], ["1993"], [], [r"20,?\d+ f(ee|oo)t"]]


def test_documents_with_an_answer_are_removed():
    rows = [[0, 1, 2, 3], [0, 1, 2, PADDING], [0, 1, 2, 3], [4, 0, 1, 2]]
    found = candidates_of([[2]] * 4, rows, documents=DOCUMENTS, answers=ANSWERS)
    assert Answers().mask(found).tolist() == [
        [True, False, False, True],
        [False, True, False, False],
        [False] * 4,
        [False] * 4,
    ]
    candidates, _, dropped = apply_filters(found, [Answers()], 2)
    assert candidates.tolist() == [[1, PADDING], [0, PADDING], [0, 1], [4, 0]]
    assert dropped == {"known positives": 4, "answers": 3}
