import numpy as np
import pytest
from helpers.filter_fixture import table_of

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.mined import auto_top_k
from pyserini_ance.negatives.table import PADDING


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
        automatic, given = (table_of(kind(top_k=top_k), snapshot, anchor_set) for top_k in ("auto", 20))
        assert np.array_equal(automatic.candidates, given.candidates) and automatic.counts.min() == least


@pytest.mark.parametrize("top_k", [1, 10, 60, 200])
def test_table_agrees_with_brute_force(split_of, snapshot_of, top_k):
    rng = np.random.default_rng(0)
    positives = [rng.choice(60, count, replace=False).tolist() for count in (1, 2, 25, 1, 58)]
    # small integers: many scores tie
    queries, documents = (rng.integers(-2, 3, (count, 3)) for count in (5, 60))
    table = table_of(Ann(top_k=top_k), snapshot_of(split_of(*positives), queries, documents))
    dropped = 0
    for query, known in enumerate(positives):
        scores = documents @ queries[query]
        dropped += sum(row in known for row in np.lexsort((np.arange(60), -scores))[: top_k + 58])
        ranked = [row for row in np.lexsort((np.arange(60), -scores)).tolist() if row not in known][:top_k]
        padding = [PADDING] * (table.candidates.shape[1] - len(ranked))
        assert table.candidates[query].tolist() == ranked + padding
        assert table.scores[query].tolist() == [*scores[ranked].tolist(), *[-np.inf] * len(padding)]
    assert table.dropped == {"known positives": dropped}


def test_filters_remove_candidates_and_more_are_retrieved(split_of, snapshot_of):
    queries, documents = [[1, 0], [0, 1]], [[10, 0], [9.8, 1], [9.4, 2], [1, 3], [0, 4], [-1, 5], [-2, 6]]
    snapshot = snapshot_of(split_of([0], [5, 2]), queries, documents)
    source = Ann(top_k=2, filters=[{"kind": "relative_margin", "margin": 0.05}], oversample=1)
    table = table_of(source, snapshot)
    assert table.candidates.tolist() == [[2, 3], [4, 3]]
    assert table.dropped == {"known positives": 3, "relative_margin": 2}
