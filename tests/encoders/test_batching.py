import numpy as np
import pytest
from helpers.device_counts import META

from pyserini_ance.encoders.batching import (
    encoding_batches,
    length_sorted_batches,
    tokens_at_once,
    training_batches,
)

LENGTHS = np.random.default_rng(0).integers(0, 60, 200)
# Of 54 tokens in one batch, 27 + 9 are left after a cut before the first 3.
SHORT = [3, 9, 3, 8, 2, 9]
# Lengths, the tokens of a batch, and what one more batch costs in tokens; the batches.
BATCHES = [([3, 9, 3, 5, 2, 5], 10, None, [[1], [3, 5], [0, 2, 4]]), ([], 10, None, []), ([], 10, 128, [])]
BATCHES += [([4, 4, 4, 4], 8, None, [[0, 1], [2, 3]]), (SHORT, 100, 18, [[1, 5, 3, 0, 2, 4]])]
BATCHES += [(SHORT, 100, 17, [[1, 5, 3], [0, 2, 4]]), (SHORT, 100, 0, [[1, 5], [3], [0, 2], [4]])]


def as_lists(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("budget", [1, 59, 60, 61, 500, 100_000])
def test_each_text_is_in_one_batch_within_the_budget(budget):
    batches = length_sorted_batches(LENGTHS, budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * LENGTHS[batch].max() <= budget


@pytest.mark.parametrize("lengths, budget, cost, expected", BATCHES)
def test_batches_go_from_long_to_short_and_are_split_where_it_saves_padding(lengths, budget, cost, expected):
    assert as_lists(length_sorted_batches(np.array(lengths, int), budget, batch_cost_tokens=cost)) == expected


@pytest.mark.parametrize("cost", [0, 20, 128])
@pytest.mark.parametrize("budget", [60, 500, 100_000])
def test_split_batches_are_the_same_texts_in_the_same_order(budget, cost):
    whole = length_sorted_batches(LENGTHS, budget)
    batches = length_sorted_batches(LENGTHS, budget, batch_cost_tokens=cost)
    assert np.concatenate(batches).tolist() == np.concatenate(whole).tolist()
    for batch in batches:
        lengths = LENGTHS[batch].tolist()
        cuts = range(1, len(lengths))
        assert max(((len(lengths) - cut) * (lengths[0] - lengths[cut]) for cut in cuts), default=0) <= cost


def test_encoded_batches_are_split_where_that_is_faster(processor):
    is_amd = processor.startswith("zen")
    costs = {("cpu", "fp32"): 32, ("cpu", "bf16"): 32 if is_amd else None, ("cuda:0", "bf16"): None}
    for (device, precision), cost in costs.items():
        batches = encoding_batches(LENGTHS, 400, device, precision)
        assert as_lists(batches) == as_lists(length_sorted_batches(LENGTHS, 400, batch_cost_tokens=cost))


@pytest.mark.parametrize(("device", "cost"), [("cpu", 128), ("cuda:0", None)])
def test_trained_batches_are_split_on_a_cpu(device, cost):
    lengths = np.array([8, 8, 300, 8, 8])
    batches = training_batches(lengths, 4096, device, 5)
    assert as_lists(batches) == as_lists(length_sorted_batches(lengths, 4096, 5, cost))
    assert len(batches) == (2 if cost else 1)


def test_batches_are_as_large_as_is_fast_on_the_device_unless_a_recipe_says():
    assert [tokens_at_once(None, device) for device in ("cpu", "cuda:1", META)] == [1024, 32_768, 32_768]
    assert tokens_at_once(77, "cpu") == 77
