import numpy as np
import pytest
from helpers.filter_fixture import candidates_of

from pyserini_ance.encoders import cross_encoder_model as rerankers
from pyserini_ance.negatives.filters import cross_encoder
from pyserini_ance.negatives.filters.cross_encoder import CrossEncoderFilter
from pyserini_ance.negatives.table import PADDING


class FakeModel:
    """Scores a pair by the number of words that its texts share."""

    def __init__(self):
        self.pairs = []

    def scores(self, pairs):
        self.pairs += pairs
        return np.array(
            [len(set(query.split()) & set(document.split())) for query, document in pairs], np.float32
        )


@pytest.mark.parametrize("anchor", ["query", "document"])
def test_pairs_above_the_threshold_are_removed(monkeypatch, anchor):
    model = FakeModel()
    monkeypatch.setattr(cross_encoder, "_load", lambda name, device, batch_pairs: model)
    documents, queries = (
        ["red apple", "green apple", "green pear", "plum"],
        ["which red apple", "which green pear"],
    )
    rows = {"query": [[1, 2, 3], [0, 1, PADDING]], "document": [[1, PADDING], [0, PADDING]]}[anchor]
    found = candidates_of([[0], [2]], rows, documents=documents, queries=queries, anchor=anchor)
    rule = CrossEncoderFilter(model="some/name", max_score=0.5)
    expected = {
        "query": [[True, False, False], [False, True, False]],
        "document": [[False, False], [False, False]],
    }[anchor]
    assert rule.mask(found).tolist() == expected
    assert sorted(model.pairs) == sorted((queries[q], documents[d]) for q, d in {
        "query": [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)], "document": [(1, 0), (0, 2)],
    }[anchor])  # fmt: skip


def test_a_missing_library_is_reported_with_the_command(monkeypatch):
    monkeypatch.setattr(rerankers, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="not installed: python -m pip install sentence-transformers"):
        CrossEncoderFilter(model="some/name", max_score=0).check_data(candidates_of([[2]], [[0]]).anchor_set)
