"""Pyserini's fusions against their formulas worked out slowly, in a process of its own."""

import json
import random

import pytest

from pyserini_ance.data.trec import best_first
from pyserini_ance.pyserini_bridge.searchers import METHODS

CHILD = """
import json, sys
from pyserini_ance.pyserini_bridge.searchers import METHODS, fuse
runs = json.loads(sys.argv[1])
found = {method: fuse(runs[:2], method, 0.3 if method == "interpolation" else None) for method in METHODS}
found["first 5 of each"] = fuse(runs[:2], "average", pool=5)
found["best 5"] = fuse(runs[:2], "normalize", hits=5)
print(json.dumps(found))
"""


def rankings() -> list[dict[str, dict[str, float]]]:
    """Ids that pandas would take for numbers or for nothing; scores in quarters, so that some tie; each lacks
    a query.
    """
    chosen, documents = random.Random(3), ["007", "7", "NA", "nan", "1e5", "é", *(f"d{i}" for i in range(20))]
    queries = {0: ["010", "10", "NA", "only-0"], 1: ["010", "10", "NA", "only-1"], 2: ["010"]}
    return [
        {
            query: {document: chosen.randrange(2, 60) / 4 for document in chosen.sample(documents, 12)}
            for query in queries[n]
        }
        for n in queries
    ]


def slowly(runs, score) -> dict[str, dict[str, float]]:
    """`score(run, query, document)` of each ranking that has the query, summed; by documents that one of them
    has.
    """
    fused = {}
    for query in dict.fromkeys(query for run in runs for query in run):
        documents = {document for run in runs for document in run.get(query, {})}
        fused[query] = {
            document: sum(score(place, run.get(query, {}), document) for place, run in enumerate(runs))
            for document in documents
        }
    return fused


def reciprocal(place, hits, document):
    return 1 / (60 + best_first(hits).index(document) + 1) if document in hits else 0


def normalized(place, hits, document):
    low, high = min(hits.values(), default=0), max(hits.values(), default=0)
    return (hits[document] - low) / (high - low) if document in hits else 0


FORMULAS = {
    "rrf": reciprocal,
    "average": lambda place, hits, document: hits.get(document, 0) / 2,
    "normalize": normalized,
    "interpolation": lambda place, hits, document: (0.3, 0.7)[place] * hits.get(document, 0),
}


@pytest.fixture(scope="module")
def found(in_java) -> dict:
    return json.loads(in_java(CHILD, json.dumps(rankings())).splitlines()[-1])


@pytest.mark.parametrize("method", METHODS)
def test_fused_scores_are_those_of_the_formula_best_first(found, method):
    expected = slowly(rankings()[:2], FORMULAS[method])
    assert {query: pytest.approx(scores) for query, scores in expected.items()} == found[method]
    for scores in found[method].values():
        assert list(scores) == best_first(scores)


def test_the_pool_and_the_hits_are_limited(found):
    pool = [{query: {d: hits[d] for d in best_first(hits)[:5]} for query, hits in run.items()}
            for run in rankings()[:2]]  # fmt: skip
    expected = slowly(pool, FORMULAS["average"])
    assert {query: pytest.approx(scores) for query, scores in expected.items()} == found["first 5 of each"]
    best = {
        query: dict(sorted(hits.items(), key=lambda pair: (-pair[1], pair[0]))[:5])
        for query, hits in found["normalize"].items()
    }
    assert found["best 5"] == best
