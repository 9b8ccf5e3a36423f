"""TopK and DeviceTopK against a stable sort of all scores. Whole numbers tie; documents come in any order."""

import numpy as np
import pytest
import torch

from pyserini_ance.vectors import topk
from pyserini_ance.vectors.topk import DeviceTopK, TopK

CLASSES = pytest.mark.parametrize("kind", [TopK, DeviceTopK])

ORDERS = {
    "drawn": lambda scores: scores,
    "rising: every block is better than all earlier ones": lambda scores: np.sort(scores, axis=1),
    "falling: nothing enters after the first": lambda scores: np.sort(scores, axis=1)[:, ::-1],
    "all equal": np.zeros_like,
}


def reference(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, 1), rows


def top_k(scores: np.ndarray, k: int, block: int, kind: type = TopK) -> tuple[np.ndarray, np.ndarray]:
    best = kind(len(scores), k, "cpu")
    for start in range(0, scores.shape[1], block):
        best.update(torch.from_numpy(np.ascontiguousarray(scores[:, start : start + block].T)), start)
    values, rows = best.result()
    assert (values.dtype, rows.dtype) == (torch.float32, torch.int32)
    return values.numpy(), rows.numpy()


@CLASSES
@pytest.mark.parametrize("distinct", [3, 100_000])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("queries", "documents", "k", "block"),
    [(7, 1000, 20, 64), (3, 333, 50, 33), (1, 100, 1, 7), (4, 40, 60, 16), (5, 90, 17, 5)],
)
def test_equals_a_stable_sort(order, queries, documents, k, block, distinct, kind):
    drawn = np.random.default_rng(documents).integers(-1, distinct, (queries, documents)).astype(np.float32)
    scores = ORDERS[order](drawn)
    for of, expected in zip(top_k(scores, k, block, kind), reference(scores, k), strict=True):
        np.testing.assert_array_equal(of, expected)


@pytest.mark.parametrize("max_pending", [0, 1000])
def test_results_do_not_depend_on_when_candidates_are_merged(monkeypatch, max_pending):
    monkeypatch.setattr(topk, "MAX_PENDING", max_pending)
    scores = np.random.default_rng(0).integers(0, 50, (6, 2000)).astype(np.float32)
    np.testing.assert_array_equal(top_k(scores, 30, 100)[1], reference(scores, 30)[1])


def test_few_documents_are_examined_once_there_is_a_threshold(monkeypatch):
    """In random order, some k * ln(100,000 / first block) of 100,000 documents are among the best so far."""
    examined, above = [], topk.above

    def counted(*arguments):
        candidates = above(*arguments)
        examined.append(len(candidates[0]))
        return candidates

    monkeypatch.setattr(topk, "above", counted)
    monkeypatch.setattr(topk, "MAX_PENDING", 1)
    scores = np.random.default_rng(0).normal(size=(4, 100_000)).astype(np.float32)
    np.testing.assert_array_equal(top_k(scores, 5, 1000)[1], reference(scores, 5)[1])
    assert len(examined) == 99 and sum(examined) < 4 * 5 * np.log(100) * 1.5


def test_many_candidates_are_sorted_together(monkeypatch):
    """Otherwise a block of ever better documents would be gathered group by group, at many times its size."""
    monkeypatch.setattr(TopK, "_merge_pending", lambda self: None)  # nothing is pending
    scores = np.sort(np.random.default_rng(0).normal(size=(4, 640)).astype(np.float32), axis=1)
    np.testing.assert_array_equal(top_k(scores, 10, 64)[1], reference(scores, 10)[1])


@CLASSES
def test_a_nan_does_not_hide_its_neighbours(kind):
    scores = np.random.default_rng(0).normal(size=(3, 640)).astype(np.float32)
    scores[:, [210, 300, 401]] = 9, 8, 7
    scores[:, [211, 301, 402]] = np.nan  # each in the group of 16 of one of the best
    for values, rows in zip(*top_k(scores, 6, 160, kind), strict=True):
        assert rows[~np.isnan(values)].tolist()[:3] == [210, 300, 401]


EXTREMES = [-np.inf, -3e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38, np.inf]


@CLASSES
def test_extreme_scores_are_in_order_and_zeros_tie(kind):
    scores = np.random.default_rng(0).choice(np.array(EXTREMES, np.float32), (4, 200))
    for of, expected in zip(top_k(scores, 150, 37, kind), reference(scores, 150), strict=True):
        np.testing.assert_array_equal(of, expected)


def test_rows_beyond_30_bits():
    scores, first = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32), 2_000_000_000
    best = DeviceTopK(2, 9, "cpu")
    best.update(torch.from_numpy(np.ascontiguousarray(scores.T)), first)
    np.testing.assert_array_equal(best.result()[1].numpy(), reference(scores, 9)[1] + first)
