"""The candidates of live sources, checked by hand. Queries: 0 has the positives 7 and 3, 1 has 5, 2 has 9."""

import numpy as np
import pytest

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.live import Live
from pyserini_ance.negatives.table import PADDING

FOUND = np.array([[1, 2, 4], [6, 5, 0], [8, 4, 9]], np.int32)
ROWS = np.arange(3)


@pytest.mark.parametrize(
    ("found", "rows", "positives", "expected"),
    [
        (FOUND, ROWS, [[3, 7], [5, PADDING], [9, PADDING]], [[1, 2, 3], [6, 5, 0], [8, 4, 9]]),
        (FOUND[:1], ROWS[:1], [[7]], [[1, 2, 7]]),
        (FOUND[:1, :1], ROWS[:1], [[7]], [[7]]),
        (np.array([[1, PADDING, PADDING]]), ROWS[:1], [[3]], [[1, PADDING, 3]]),  # a short ranking
    ],
)
def test_without_a_positive_the_drawn_one_takes_the_last_rank(split_of, found, rows, positives, expected):
    anchor_set = AnchorSet(split_of([7, 3], [5], [9]), "query", 10)
    taken = Live().candidates(found, rows, np.array(positives), anchor_set.known_positives)
    assert taken.tolist() == expected
