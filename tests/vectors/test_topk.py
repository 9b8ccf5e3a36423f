"""TopK against a stable sort of all scores. Whole numbers tie; documents come in any order."""

import numpy as np
import pytest
import torch
from helpers.stable_sort import best_by_stable_sort as reference

from pyserini_ance.vectors.topk import TopK, above, add_highest

ORDERS = {
    "drawn": lambda scores: scores,
    "rising: every block is better than all earlier ones": lambda scores: np.sort(scores, axis=1),
    "falling: nothing enters after the first": lambda scores: np.sort(scores, axis=1)[:, ::-1],
    "all equal": np.zeros_like,
}
EXTREMES = [-np.inf, -3e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38, np.inf]
SIZES = [(7, 1000, 20, 64), (3, 333, 50, 33), (1, 100, 1, 7), (4, 40, 40, 16), (5, 90, 17, 5)]


def top_k(scores: np.ndarray, k: int, block: int, max_pending: int | None = None) -> tuple:
    """By blocks of scores, or with `max_pending` by pairs."""
    best = TopK(len(scores), k, max_pending=max_pending or 0)
    for start in range(0, scores.shape[1], block):
        part = torch.from_numpy(np.ascontiguousarray(scores[:, start : start + block]))
        if max_pending is None:
            best.update(part.T.contiguous(), start)
        else:
            queries, rows = torch.ones_like(part).nonzero(as_tuple=True)
            best.update_pairs(queries, rows + start, part.flatten())
    values, rows = best.result()
    assert (values.dtype, rows.dtype) == (torch.float32, torch.int32)
    return values.numpy(), rows.numpy()


@pytest.mark.parametrize("max_pending", [None, 0, 32, 1000])
@pytest.mark.parametrize("distinct", [3, 100_000])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("queries, documents, k, block", SIZES)
def test_equals_a_stable_sort(order, queries, documents, k, block, distinct, max_pending):
    drawn = np.random.default_rng(documents).integers(-1, distinct, (queries, documents)).astype(np.float32)
    scores = ORDERS[order](drawn)
    for of, expected in zip(top_k(scores, k, block, max_pending), reference(scores, k), strict=True):
        np.testing.assert_array_equal(of, expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("queries, documents, k, block", [*SIZES, (3, 5000, 7, 1024), (2, 900, 3, 320)])
def test_highest_scores_are_those_of_a_stable_sort(order, queries, documents, k, block):
    scores = ORDERS[order](np.random.default_rng(k).normal(size=(queries, documents)).astype(np.float32))
    best = torch.empty(queries, 0), torch.empty(queries, 0, dtype=torch.int64)
    for start in range(0, documents, block):
        part = torch.from_numpy(np.ascontiguousarray(scores[:, start : start + block]))
        best = add_highest(best, part, start, k)
    values, rows = (each.numpy() for each in best)
    np.testing.assert_array_equal(values, reference(scores, k)[0])
    np.testing.assert_array_equal(np.take_along_axis(scores, rows, 1), values)
    assert all(len(set(row)) == k for row in rows.tolist())


def test_scores_above_a_threshold_are_found_next_to_nan():
    scores = torch.randn(645, 3, generator=torch.Generator().manual_seed(0))
    scores[[17, 300]] = torch.nan
    threshold = torch.tensor([1.0, torch.inf, -1.0])
    queries, rows = above(scores, threshold)
    expected = (scores > threshold).T.nonzero(as_tuple=True)
    order = np.lexsort((rows, queries))
    assert torch.equal(queries[order], expected[0]) and torch.equal(rows[order], expected[1])
    assert (rows[1:] >= rows[:-1])[queries[1:] == 0].all()


def test_a_nan_does_not_hide_its_neighbours():
    scores = np.random.default_rng(0).normal(size=(3, 640)).astype(np.float32)
    scores[:, [210, 300, 401]] = 9, 8, 7
    scores[:, [211, 301, 402]] = np.nan  # each in the group of 16 of one of the best
    for values, rows in zip(*top_k(scores, 6, 160), strict=True):
        assert rows[~np.isnan(values)].tolist()[:3] == [210, 300, 401]


def test_extreme_scores_are_in_order_and_zeros_tie():
    scores = np.random.default_rng(0).choice(np.array(EXTREMES, np.float32), (4, 200))
    for of, expected in zip(top_k(scores, 150, 37), reference(scores, 150), strict=True):
        np.testing.assert_array_equal(of, expected)


def test_rows_beyond_30_bits():
    scores, first = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32), 2_000_000_000
    best = TopK(2, 9)
    best.update(torch.from_numpy(np.ascontiguousarray(scores.T)), first)
    np.testing.assert_array_equal(best.result()[1].numpy(), reference(scores, 9)[1] + first)
