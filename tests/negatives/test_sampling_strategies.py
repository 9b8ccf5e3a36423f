from collections import Counter
from itertools import permutations
from math import exp, prod

import numpy as np
import pytest
from helpers.filter_fixture import table_of
from scipy.stats import chi2

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.table import PADDING, NegativeTable

SCORES = [0.9, 0.7, 0.6, 0.1, -0.4]
ROWS = [4, 7, 5, 6, 9]
SEEDS, DRAWS = 40, 500


def table(*lines: list[int], scores: list, positives: list[float] | None = None) -> NegativeTable:
    found = None if positives is None else np.array(positives, np.float32)
    anchors = np.arange(len(lines), dtype=np.int32)
    arrays = np.array(lines, np.int32), np.array(scores, np.float32)
    return NegativeTable("query", "document", anchors, *arrays, "ann", positive_scores=found)


def chi_square(source, made, row: int, split, expected: dict[tuple[int, ...], float]) -> tuple[float, float]:
    """The statistic over SEEDS generators of DRAWS draws each, and its 0.999 quantile."""
    assert sum(expected.values()) == pytest.approx(1)
    drawn: Counter[tuple[int, ...]] = Counter()
    for seed in range(SEEDS):
        rng = np.random.default_rng(np.random.SeedSequence(17, spawn_key=(seed,)))
        rows = np.full(DRAWS, row, np.int32)
        drawn.update(map(tuple, source.draw(rows, made, AnchorSet(split, "query", 10), rng).tolist()))
    assert set(drawn) <= set(expected)
    total = SEEDS * DRAWS
    statistic = sum((drawn[key] - total * p) ** 2 / (total * p) for key, p in expected.items())
    return statistic, float(chi2.ppf(0.999, len(expected) - 1))


def successive(weight: dict[int, float], n: int) -> dict[tuple[int, ...], float]:
    """The probability of each sequence of `n` draws without replacement."""

    def left(rows) -> float:
        return sum(weight.values()) - sum(weight[row] for row in rows)

    sequences = list(permutations(weight, n))
    return {rows: prod(weight[row] / left(rows[:i]) for i, row in enumerate(rows)) for rows in sequences}


@pytest.mark.parametrize(("a", "positive", "n"), [(0.5, 0.8, 1), (3.0, 0.5, 1), (4.0, 0.4, 2), (1.5, 0.5, 3)])
def test_ambiguous_draws_have_the_probabilities_of_the_paper(split_of, a, positive, n):
    made = table([1, 2, 3, 8, PADDING], ROWS, scores=[[0.5] * 5, SCORES], positives=[0.0, positive])
    source = Ann(num_negatives=n, sampling_strategy="ambiguous", a=a)
    # Zhou et al. 2022, as written.
    weights = {row: exp(-a * (score - positive) ** 2) for row, score in zip(ROWS, SCORES, strict=True)}
    expected = successive(weights, n)
    statistic, bound = chi_square(source, made, 1, split_of([0], [0]), expected)
    assert statistic < bound
    uniform = dict.fromkeys(expected, 1 / len(expected))
    assert chi_square(source, made, 1, split_of([0], [0]), uniform)[0] > bound  # the check can tell


def test_ambiguous_draws_are_uniform_for_an_anchor_whose_positive_has_no_score(split_of):
    made = table(ROWS, scores=[SCORES], positives=[float("nan")])
    source = Ann(sampling_strategy="ambiguous", a=50)
    statistic, bound = chi_square(source, made, 0, split_of([0]), {(row,): 0.2 for row in ROWS})
    assert statistic < bound


def test_ambiguous_draws_choose_the_nearest_score_where_all_weights_are_below_the_smallest_float(split_of):
    """exp(-1000 * 100^2) is 0 in any float format."""
    made = table(ROWS, scores=[SCORES], positives=[100.0])
    source = Ann(num_negatives=2, sampling_strategy="ambiguous", a=1000)
    anchor_set, rows = AnchorSet(split_of([0]), "query", 10), np.zeros(50, np.int32)
    assert source.draw(rows, made, anchor_set, np.random.default_rng(0)).tolist() == [ROWS[:2]] * 50


@pytest.mark.parametrize("strategy", ["random", "ambiguous"])
def test_short_anchors_give_all_their_candidates_and_then_random_ones(split_of, strategy):
    scores = [[0.9, 0.7, -np.inf], [-np.inf] * 3]
    made = table([4, 7, PADDING], [PADDING] * 3, scores=scores, positives=[1, 1])
    source = Ann(num_negatives=4, sampling_strategy=strategy)
    rng, anchor_set = np.random.default_rng(0), AnchorSet(split_of([0], [0]), "query", 9)
    for _ in range(50):
        first, second = source.draw(np.array([0, 1]), made, anchor_set, rng).tolist()
        assert sorted(first[:2]) == [4, 7] and 0 not in first + second
        assert len(set(first)) == len(set(second)) == 4 and PADDING not in first + second


def test_the_table_has_the_scores_of_the_positives(split_of, snapshot_of):
    rng = np.random.default_rng(0)
    queries, documents = (rng.normal(size=(count, 4)).astype(np.float32) for count in (3, 12))
    positives = [[2], [0, 5], [7]]
    snapshot = snapshot_of(split_of(*positives), queries, documents)
    mined = table_of(Ann(top_k=4, num_negatives=2, sampling_strategy="ambiguous"), snapshot)
    best = [max(documents[rows] @ query) for query, rows in zip(queries, positives, strict=True)]
    assert mined.positive_scores == pytest.approx(best)
