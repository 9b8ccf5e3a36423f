import numpy as np
import pytest
from negatives.guards.given import candidates_of

from pyserini_ance.negatives.guards import cross_encoder
from pyserini_ance.negatives.guards.cross_encoder import CrossEncoder
from pyserini_ance.negatives.table import PADDING


class StandIn:
    """Scores a pair by the words that its texts share."""

    def __init__(self):
        self.pairs = []

    def predict(self, pairs, batch_size, show_progress_bar):
        self.pairs += pairs
        return np.array([len(set(query.split()) & set(document.split())) for query, document in pairs], np.float32)


@pytest.mark.parametrize("anchor", ["query", "document"])
def test_what_it_scores_above_the_threshold_goes(monkeypatch, anchor):
    model = StandIn()
    monkeypatch.setattr(cross_encoder, "_load", lambda name, device: model)
    documents, queries = ["red apple", "green apple", "green pear", "plum"], ["which red apple", "which green pear"]
    rows = {"query": [[1, 2, 3], [0, 1, PADDING]], "document": [[1, PADDING], [0, PADDING]]}[anchor]
    found = candidates_of([[0], [2]], rows, documents=documents, queries=queries, anchor=anchor)
    guard = CrossEncoder(model="some/name", above=0.5)
    expected = {"query": [[True, False, False], [False, True, False]], "document": [[False, False], [False, False]]}[anchor]
    assert guard.mark(found).tolist() == expected
    assert sorted(model.pairs) == sorted((queries[q], documents[d]) for q, d in {
        "query": [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)], "document": [(1, 0), (0, 2)],
    }[anchor])  # fmt: skip


def test_a_model_that_gives_no_single_score_is_refused(monkeypatch):
    classes = StandIn()
    classes.predict = lambda pairs, **how: np.zeros((len(pairs), 3))
    monkeypatch.setattr(cross_encoder, "_load", lambda name, device: classes)
    with pytest.raises(ValueError, match="some/name gives 3 scores a pair, expected one"):
        CrossEncoder(model="some/name", above=0).mark(candidates_of([[2]], [[0, 1]]))


def test_without_the_library_the_cure_is_named(monkeypatch):
    monkeypatch.setattr(cross_encoder, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="not installed: python -m pip install sentence-transformers"):
        CrossEncoder(model="some/name", above=0).check_data(candidates_of([[2]], [[0]]).direction)
