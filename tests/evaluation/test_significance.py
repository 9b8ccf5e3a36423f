"""Paired tests against worked numbers and written-out references."""

import math

import numpy as np
import pytest
from scipy import stats

from pyserini_ance.evaluation.metrics import Difference, differences, equivalence, holm, t_test


def test_students_t_from_its_definition():
    values = np.array([0.1, 0.3, -0.1, 0.5, 0.2])
    t = values.mean() / (values.std(ddof=1) / math.sqrt(5))
    assert t_test(values) == pytest.approx(2 * stats.t.sf(abs(t), 4), rel=1e-12)


def test_equal_values_tie_however_many_runs_their_means_are_of():
    """Added up run by run, means of 11 reciprocal ranks over 3 and over 24 runs differ as floats for 6."""
    values = 1 / np.arange(1, 12)
    three, many = (np.mean([values] * runs, axis=0) for runs in (3, 24))
    assert (three != many).any()
    assert differences({"a": three}, many) == {"a": Difference(0.0, 1.0, 0, 11, 0)}


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_differences_without_variance_have_the_p_of_their_sign_changes(queries):
    """Of 2^Q sign changes those to all + and to all - have as large a mean; the t statistic would be
    infinite, or nan of one query."""
    values = np.full(queries, 0.7)  # not exact in binary, and less 0.3 not the same as 0.4
    assert differences({"a": values}, np.full(queries, 0.3))["a"].p == pytest.approx(2 / 2**queries)


def test_equivalence_is_where_the_90_percent_interval_lies_within_the_margin():
    values = np.random.default_rng(3).normal(0.002, 0.05, 200)
    half = stats.t.ppf(0.95, 199) * values.std(ddof=1) / math.sqrt(200)
    farther_end = abs(values.mean()) + half
    assert equivalence(values, farther_end) == pytest.approx(0.05)
    assert equivalence(values, farther_end * 1.01) < 0.05 < equivalence(values, farther_end * 0.99)
    assert equivalence(-values, 0.01) == pytest.approx(equivalence(values, 0.01))


@pytest.mark.parametrize(("difference", "p"), [(0.0, 0.125), (-0.009, 0.125), (0.01, 1.0)])
def test_equivalence_without_variance(difference, p):
    assert equivalence(np.full(3, difference), 0.01) == p


def test_holm_by_hand():
    """0.01 x 4, 0.02 x 3, 0.03 x 2, 0.2 x 1: the third may not be below the second."""
    assert holm([0.02, 0.2, 0.01, 0.025]) == pytest.approx([0.06, 0.2, 0.04, 0.06])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0]) and holm([]) == []


def test_each_system_is_set_against_the_baseline_and_corrected_for_all():
    rng = np.random.default_rng(0)
    baseline = rng.random(50)
    better, same = baseline + rng.normal(0.1, 0.1, 50), baseline + rng.normal(0, 0.1, 50)
    found = differences({"better": better, "same": same}, baseline)
    assert found["better"].p == pytest.approx(2 * t_test(better - baseline))
    assert found["same"].p == pytest.approx(t_test(same - baseline))
    assert found["better"].mean == pytest.approx((better - baseline).mean())
    counts = int((better > baseline).sum()), int((better < baseline).sum())
    assert (found["better"].wins, found["better"].losses) == counts
    assert str(found["better"]).endswith("p <0.001")
    assert str(Difference(-0.0123, 0.0456, 1, 2, 3)) == "-0.012, p 0.046"
