import numpy as np
import pytest

from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.trainer.frozen_documents import LiveSearchMetrics

RELATION = AnchorSet(
    Split("train", None, Qrels.of([0, 0, 1, 2], [4, 5, 6, 7], [1] * 4, 3)), "query", 30
).known_positives
FOUND = np.array([[1, 4, 2, 5], [8, 9, 1, 6], [1, 2, 3, 4]])


def test_measures_are_means_over_the_step_however_it_is_cut():
    whole, parts = LiveSearchMetrics(RELATION), LiveSearchMetrics(RELATION)
    whole.add("query.0", np.arange(3), FOUND, 1.0, 0.25)
    for part in (slice(0, 2), slice(2, 3)):
        parts.add("query.0", np.arange(3)[part], FOUND[part], len(FOUND[part]) / 3, 0.125)
    expected = {
        "found": {"query.0": {"RR@10": pytest.approx(0.25, abs=1e-6), "R@4": pytest.approx(2 / 3, abs=1e-6)}},
        "search_seconds": 0.25,
    }
    assert whole.pop() == expected and parts.pop() == expected
    assert whole.pop() == {}


def test_rr_looks_at_ten():
    live_metrics = LiveSearchMetrics(RELATION)
    live_metrics.add("query.0", np.array([1]), np.array([[*range(10, 20), 6]]), 1.0, 0.0)
    assert live_metrics.pop()["found"] == {"query.0": {"RR@10": 0.0, "R@11": 1.0}}
