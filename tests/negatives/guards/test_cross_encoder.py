import numpy as np
import pytest
from negatives.guards.given import candidates_of

from pyserini_ance.negatives.guards import cross_encoder
from pyserini_ance.negatives.guards.cross_encoder import CrossEncoder
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.rerankers import cross_encoder as rerankers


class StandIn:
    """Scores a pair by the words that its texts share."""

    def __init__(self):
        self.pairs = []

    def scores(self, pairs):
        self.pairs += pairs
        return np.array([len(set(query.split()) & set(document.split())) for query, document in pairs], np.float32)


@pytest.mark.parametrize("anchor", ["query", "document"])
def test_what_it_scores_above_the_threshold_goes(monkeypatch, anchor):
    model = StandIn()
    monkeypatch.setattr(cross_encoder, "_load", lambda name, device, batch_pairs: model)
    documents, queries = ["red apple", "green apple", "green pear", "plum"], ["which red apple", "which green pear"]
    rows = {"query": [[1, 2, 3], [0, 1, PADDING]], "document": [[1, PADDING], [0, PADDING]]}[anchor]
    found = candidates_of([[0], [2]], rows, documents=documents, queries=queries, anchor=anchor)
    guard = CrossEncoder(model="some/name", above=0.5)
    expected = {"query": [[True, False, False], [False, True, False]], "document": [[False, False], [False, False]]}[anchor]
    assert guard.mark(found).tolist() == expected
    assert sorted(model.pairs) == sorted((queries[q], documents[d]) for q, d in {
        "query": [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)], "document": [(1, 0), (0, 2)],
    }[anchor])  # fmt: skip


def test_without_the_library_the_cure_is_named(monkeypatch):
    monkeypatch.setattr(rerankers, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="not installed: python -m pip install sentence-transformers"):
        CrossEncoder(model="some/name", above=0).check_data(candidates_of([[2]], [[0]]).direction)
