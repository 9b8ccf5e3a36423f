import numpy as np
import pytest

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.mined import auto_top_k


@pytest.mark.parametrize(
    ("candidates", "top_k"),
    [
        (1, 20),
        (4_987, 20),  # the demo
        (8_800, 20),
        (15_809, 24),  # MedQuAD
        (70_400, 40),  # (70,400 / 8.8 million)^(1/3) is exactly 0.2
        (1_100_000, 100),
        (8_841_823, 200),  # MS MARCO passages
        (21_015_324, 200),  # Wikipedia of DPR
    ],
)
def test_the_rule(candidates, top_k):
    assert auto_top_k(candidates) == top_k


@pytest.mark.parametrize("kind", [Ann, Lookahead])
def test_auto_mines_the_table_of_its_number(kind, split_of, snapshot_of):
    """The number of the searched side: 60 documents for a query, 2 queries for a document."""
    rng = np.random.default_rng(0)
    snapshot = snapshot_of(split_of([0], [1]), rng.normal(size=(2, 4)), rng.normal(size=(60, 4)))
    for side, least in (("query", 20), ("document", 1)):
        anchor_set = snapshot.anchor_set(side)
        automatic, given = (kind(top_k=top_k).mine(snapshot, anchor_set) for top_k in ("auto", 20))
        assert np.array_equal(automatic.candidates, given.candidates) and automatic.counts.min() == least
