"""Pyserini's fusions of two small rankings, worked out by hand, in a process of its own."""

import json

import pytest

from pyserini_ance.data.trec import best_first
from pyserini_ance.pyserini_bridge.searchers import METHODS

CHILD = """
import json, sys
from pyserini_ance.pyserini_bridge.searchers import METHODS, fuse
runs = json.loads(sys.argv[1])
found = {method: fuse(runs, method, 0.25 if method == "interpolation" else None) for method in METHODS}
found["first 2 of each"] = fuse(runs, "average", pool=2)
found["best 2"] = fuse(runs, "normalize", hits=2)
print(json.dumps(found))
"""
# Ids that pandas would take for numbers or for nothing; the second ranking lacks a query.
RUNS = [{"010": {"007": 8, "NA": 6, "7": 4}, "nan": {"1e5": 3}}, {"010": {"NA": 2, "é": 1.5, "007": 1}}]
EXPECTED = {
    "rrf": {"007": 1 / 61 + 1 / 63, "NA": 1 / 62 + 1 / 61, "7": 1 / 63, "é": 1 / 62},
    "average": {"007": 4.5, "NA": 4, "7": 2, "é": 0.75},
    "normalize": {"007": 1, "NA": 1.5, "7": 0, "é": 0.5},
    "interpolation": {"007": 2.75, "NA": 3, "7": 1, "é": 1.125},
    "first 2 of each": {"007": 4, "NA": 4, "é": 0.75},
    "best 2": {"NA": 1.5, "007": 1},
}
ALONE = {"rrf": 1 / 61, "average": 1.5, "interpolation": 0.75, "first 2 of each": 1.5}


@pytest.fixture(scope="module")
def found(in_java) -> dict:
    return json.loads(in_java(CHILD, json.dumps(RUNS)).splitlines()[-1])


@pytest.mark.parametrize("method", EXPECTED)
def test_fused_scores_best_first(found, method):
    assert METHODS.keys() < EXPECTED.keys()
    assert found[method]["010"] == pytest.approx(EXPECTED[method])
    for scores in found[method].values():
        assert list(scores) == best_first(scores)
    if method in ALONE:
        assert found[method]["nan"] == pytest.approx({"1e5": ALONE[method]})
