from helpers.filter_fixture import candidates_of

from pyserini_ance.negatives.filters.training_positives import TrainingPositives
from pyserini_ance.negatives.table import PADDING


def test_a_candidate_stays_if_it_is_a_positive_of_any_query():
    found = candidates_of([[0], [1, 2], [49]], [[1, 5, 49], [0, 3, PADDING], [7, 2, 48]])
    expected = [[False, True, False], [False, True, False], [True, False, True]]
    assert TrainingPositives().mask(found).tolist() == expected


def test_of_a_document_every_query_that_has_a_positive_stays():
    found = candidates_of([[0], [], [1]], [[1, 2], [0, 1]], anchor="document")
    assert TrainingPositives().mask(found).tolist() == [[True, False], [False, True]]
