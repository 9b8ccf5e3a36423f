import numpy as np
import pytest

from pyserini_ance.encoders.encoder import length_sorted_batches

LENGTHS = np.random.default_rng(0).integers(0, 60, 200)


@pytest.mark.parametrize("budget", [1, 59, 60, 61, 500, 100_000])
def test_each_text_is_in_one_batch_within_the_budget(budget):
    batches = length_sorted_batches(LENGTHS, budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * LENGTHS[batch].max() <= budget


def test_batches_go_from_long_to_short_and_take_as_many_as_fit():
    assert [batch.tolist() for batch in length_sorted_batches(np.array([3, 9, 3, 5, 2, 5]), 10)] == [
        [1],
        [3, 5],
        [0, 2, 4],
    ]


def test_texts_of_equal_length_keep_their_order():
    assert [batch.tolist() for batch in length_sorted_batches(np.array([4, 4, 4, 4]), 8)] == [[0, 1], [2, 3]]


def test_no_texts_make_no_batches():
    assert length_sorted_batches(np.array([], int), 10) == []
