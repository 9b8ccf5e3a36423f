"""The best of many scores, block after block, against a stable sort of all. Whole numbers tie; any order of documents."""

import numpy as np
import pytest
import torch

from pyserini_ance.vectors import best
from pyserini_ance.vectors.best import Best

ORDERS = {
    "drawn": lambda scores: scores,
    "rising: every block is better than all before": lambda scores: np.sort(scores, axis=1),
    "falling: nothing enters after the first": lambda scores: np.sort(scores, axis=1)[:, ::-1],
    "all equal": np.zeros_like,
}


def reference(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, 1), rows


def found(scores: np.ndarray, k: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    kept = Best(len(scores), k)
    for start in range(0, scores.shape[1], block):
        kept.offer(torch.from_numpy(np.ascontiguousarray(scores[:, start : start + block].T)), start)
    values, rows = kept.take()
    assert (values.dtype, rows.dtype) == (torch.float32, torch.int32)
    return values.numpy(), rows.numpy()


@pytest.mark.parametrize("distinct", [3, 100_000])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("queries", "documents", "k", "block"), [(7, 1000, 20, 64), (3, 333, 50, 33), (1, 100, 1, 7), (4, 40, 60, 16), (5, 90, 17, 5)])
def test_equals_a_stable_sort(order, queries, documents, k, block, distinct):
    drawn = np.random.default_rng(documents).integers(0, distinct, (queries, documents)).astype(np.float32)
    scores = ORDERS[order](drawn)
    for of, expected in zip(found(scores, k, block), reference(scores, k), strict=True):
        np.testing.assert_array_equal(of, expected)


@pytest.mark.parametrize("waiting", [0, 1000])
def test_whenever_candidates_are_sorted_in(monkeypatch, waiting):
    monkeypatch.setattr(best, "WAITING", waiting)
    scores = np.random.default_rng(0).integers(0, 50, (6, 2000)).astype(np.float32)
    np.testing.assert_array_equal(found(scores, 30, 100)[1], reference(scores, 30)[1])


def test_few_documents_are_looked_at_once_there_is_a_bar(monkeypatch):
    """What it is for: of 100,000 documents in any order some k * ln(100,000 / first block) can have been among the best so far."""
    looked_at, above = [], best._above

    def counted(scores, bar):
        candidates = above(scores, bar)
        looked_at.append(len(candidates[0]))
        return candidates

    monkeypatch.setattr(best, "_above", counted)
    monkeypatch.setattr(best, "WAITING", 1)
    scores = np.random.default_rng(0).normal(size=(4, 100_000)).astype(np.float32)
    np.testing.assert_array_equal(found(scores, 5, 1000)[1], reference(scores, 5)[1])
    assert len(looked_at) == 99 and sum(looked_at) < 4 * 5 * np.log(100) * 1.5


def test_many_candidates_are_sorted_at_once(monkeypatch):
    """Else a block of ever better documents would be gathered group by group, at many times its size."""
    monkeypatch.setattr(Best, "_sort_in", lambda self: None)  # nothing waits
    scores = np.sort(np.random.default_rng(0).normal(size=(4, 640)).astype(np.float32), axis=1)
    np.testing.assert_array_equal(found(scores, 10, 64)[1], reference(scores, 10)[1])


def test_one_that_is_no_number_hides_none_of_its_neighbours():
    scores = np.random.default_rng(0).normal(size=(3, 640)).astype(np.float32)
    scores[:, [210, 300, 401]] = 9, 8, 7
    scores[:, [211, 301, 402]] = np.nan  # each in the group of 16 of one of the best
    for values, rows in zip(*found(scores, 6, 160), strict=True):
        assert rows[~np.isnan(values)].tolist()[:3] == [210, 300, 401]
