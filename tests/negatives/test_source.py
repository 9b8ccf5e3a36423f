from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.random import Random
from pyserini_ance.negatives.table import PADDING, NegativeTable


def table(*candidates: list[int]) -> NegativeTable:
    candidates = np.array(candidates, np.int32)
    return NegativeTable("query", "document", np.arange(len(candidates)), candidates, candidates.astype(np.float32), "ann")


def test_random_draws_are_uniform_over_what_is_no_positive(split_of):
    split = split_of([2], [0, 1, 3])
    drawn = Random(per_query=2).draw(np.zeros(6000, np.int32), None, Direction(split, "query", 5), np.random.default_rng(0))
    pairs = Counter(map(tuple, drawn.tolist()))
    assert set(pairs) == set(permutations([0, 1, 3, 4], 2))
    expected = 6000 / 12
    assert sum((count - expected) ** 2 / expected for count in pairs.values()) < 31.3  # 11 degrees of freedom, p = 0.001


def test_random_can_draw_every_document_that_is_left(split_of):
    drawn = Random(per_query=2).draw(np.array([1, 1, 1]), None, Direction(split_of([2], [0, 1, 3]), "query", 5), np.random.default_rng(0))
    assert np.sort(drawn, axis=1).tolist() == [[2, 4]] * 3


@pytest.mark.parametrize("source", [Random(per_query=3), Ann(per_query=3), Ann(per_query=3, when_short="random")])
def test_data_with_too_few_documents_is_refused_before_training(split_of, source):
    with pytest.raises(ValueError, match="per_query=3 negatives, but query q1 has only 2: 3 of the 5 documents"):
        source.check_data(Direction(split_of([2], [0, 1, 3]), "query", 5))
    source.check_data(Direction(split_of([2], [0, 1, 3]), "query", 6))


def test_queries_with_too_few_candidates_are_named(split_of):
    short = table([1, PADDING], [2, 3], [PADDING, PADDING])
    split = split_of([0], [0], [0])
    with pytest.raises(ValueError, match=r"2 of 3 queries have fewer than per_query=2 candidates, first q0 \(1\), q2 \(0\)\. Lower"):
        Ann(per_query=2).check(short, None, split)
    assert Ann(per_query=2, when_short="random").check(short, None, split) == 2
    assert Ann(per_query=2).check(table([1, 2]), None, split_of([0])) == 0


def test_random_documents_fill_up_and_repeat_nothing(split_of):
    split, short = split_of([0], [5]), table([1, 2, PADDING], [4, PADDING, PADDING])
    source = Ann(per_query=4, when_short="random")
    for seed in range(200):
        first, second = source.draw(np.array([0, 1]), short, Direction(split, "query", 6), np.random.default_rng(seed)).tolist()
        assert sorted(first[:2]) == [1, 2] and set(first[2:]) < {3, 4, 5}
        assert second[0] == 4 and set(second[1:]) < {0, 1, 2, 3}
        assert len(set(first)) == len(set(second)) == 4


def test_a_full_table_never_asks_for_random_documents(split_of):
    drawn = Ann(per_query=2, when_short="random").draw(np.array([0]), table([1, 2]), Direction(split_of([0]), "query", 3), np.random.default_rng(0))
    assert sorted(drawn[0].tolist()) == [1, 2]


def test_the_hardest_are_the_first_in_rank_order(split_of):
    split, made = split_of([0], [5], [9]), table([4, 1, 2], [3, 4, 1], [7, PADDING, PADDING])
    source, direction = Ann(per_query=2, sample="hardest", when_short="random"), Direction(split, "query", 10)
    drawn = source.draw(np.array([1, 0, 2]), made, direction, np.random.default_rng(0)).tolist()
    assert drawn[:2] == [[3, 4], [4, 1]] and drawn[2][0] == 7 and drawn[2][1] not in (7, 9, PADDING)
    assert Ann(per_query=5, sample="hardest", when_short="random").draw(np.array([0]), made, direction, np.random.default_rng(0)).shape == (1, 5)


def test_uniform_draws_take_all_candidates_alike(split_of):
    drawn = Ann().draw(np.zeros(3000, np.int32), table([4, 1, 2]), Direction(split_of([0]), "query", 10), np.random.default_rng(0))
    counts = Counter(drawn.ravel().tolist())
    assert set(counts) == {1, 2, 4} and sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 13.8  # 2 degrees of freedom, p = 0.001


def test_equal_generators_draw_equally(split_of):
    split = split_of([0], [1], [2])
    first, second = (Random(per_query=3).draw(np.arange(3), None, Direction(split, "query", 50), np.random.default_rng(7)) for _ in range(2))
    assert first.tolist() == second.tolist()
