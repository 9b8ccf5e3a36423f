import random

import numpy as np
import pytest

from pyserini_ance.data import best
from pyserini_ance.data.best import PADDING, Best, Repeated

DEPTH = 3


def kept(hits: list[tuple[int, int, float]], **settings) -> Best:
    found = Best(4, DEPTH, **settings)
    for number, hit in enumerate(hits, start=1):
        found.add(*hit, number)
    found.merge()
    return found


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("levels", [3, 10_000])
def test_blocks_keep_what_sorting_all_at_once_keeps(monkeypatch, block, levels):
    monkeypatch.setattr(best, "HITS_PER_BLOCK", block)
    rng = random.Random(levels)
    pairs = [(query, document) for query in (0, 1, 3) for document in range(40)]
    hits = [(*pair, float(rng.randrange(levels))) for pair in rng.sample(pairs, len(pairs))]
    found = kept(hits)
    for query in range(4):
        expected = sorted((hit for hit in hits if hit[0] == query), key=lambda hit: -hit[2])[:DEPTH]  # stable, as in a file
        assert found.found[query].tolist() == ([document for _, document, _ in expected] or [PADDING] * DEPTH)
        assert found.scores[query].tolist() == ([score for *_, score in expected] or [-np.inf] * DEPTH)


@pytest.mark.parametrize("block", [1, 1000])
def test_the_earliest_repeat_is_told(monkeypatch, block):
    monkeypatch.setattr(best, "HITS_PER_BLOCK", block)
    hits = [(0, 5, 1.0), (1, 5, 1.0), (0, 6, 2.0), (1, 7, 3.0), (0, 5, 9.0), (1, 5, 4.0)]
    with pytest.raises(Repeated) as error:
        kept(hits)
    assert (error.value.number, error.value.query, error.value.document, error.value.score) == (5, 0, 5, 9.0)
    with pytest.raises(Repeated, match="line 4: document 8 again for query 0"):
        kept([(0, 5, -1.0), (0, 6, -2.0), (1, 6, -2.0), (0, 8, -2.0)], distinct_scores=True)
    assert kept([(0, 5, -1.0), (0, 6, -2.0), (0, 8, -2.0)]).found[0].tolist() == [5, 6, 8]


def test_fewer_than_the_depth_and_none_at_all():
    assert kept([(2, 9, 0.5)]).found.tolist() == [[PADDING] * 3, [PADDING] * 3, [9, PADDING, PADDING], [PADDING] * 3]
    assert (kept([]).found == PADDING).all()
