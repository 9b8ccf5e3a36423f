import random

import numpy as np
import pytest

from pyserini_ance.data import trec
from pyserini_ance.data.trec import PADDING, RankingBuilder, RepeatedHit

TOP_K = 3


def build(hits: list[tuple[int, int, float]], **settings) -> RankingBuilder:
    builder = RankingBuilder(4, TOP_K, **settings)
    for number, hit in enumerate(hits, start=1):
        builder.add(*hit, number)
    builder.merge()
    return builder


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("levels", [3, 10_000])
def test_blocks_agree_with_sorting_all_hits_at_once(monkeypatch, block, levels):
    monkeypatch.setattr(trec, "HITS_PER_BLOCK", block)
    rng = random.Random(levels)
    pairs = [(query, document) for query in (0, 1, 3) for document in range(40)]
    hits = [(*pair, float(rng.randrange(levels))) for pair in rng.sample(pairs, len(pairs))]
    builder = build(hits)
    for query in range(4):
        expected = sorted((hit for hit in hits if hit[0] == query), key=lambda hit: -hit[2])[
            :TOP_K
        ]  # stable, as in a file
        assert builder.rows[query].tolist() == (
            [document for _, document, _ in expected] or [PADDING] * TOP_K
        )
        assert builder.scores[query].tolist() == ([score for *_, score in expected] or [-np.inf] * TOP_K)


@pytest.mark.parametrize("block", [1, 1000])
def test_the_earliest_repeat_is_reported(monkeypatch, block):
    monkeypatch.setattr(trec, "HITS_PER_BLOCK", block)
    hits = [(0, 5, 1.0), (1, 5, 1.0), (0, 6, 2.0), (1, 7, 3.0), (0, 5, 9.0), (1, 5, 4.0)]
    with pytest.raises(RepeatedHit) as error:
        build(hits)
    assert (error.value.number, error.value.query, error.value.document, error.value.score) == (5, 0, 5, 9.0)
    with pytest.raises(RepeatedHit, match="line 4: document 8 again for query 0"):
        build([(0, 5, -1.0), (0, 6, -2.0), (1, 6, -2.0), (0, 8, -2.0)], distinct_scores=True)
    assert build([(0, 5, -1.0), (0, 6, -2.0), (0, 8, -2.0)]).rows[0].tolist() == [5, 6, 8]


def test_fewer_hits_than_top_k_and_none():
    assert build([(2, 9, 0.5)]).rows.tolist() == [
        [PADDING] * 3,
        [PADDING] * 3,
        [9, PADDING, PADDING],
        [PADDING] * 3,
    ]
    assert (build([]).rows == PADDING).all()
