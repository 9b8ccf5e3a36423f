from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from helpers.filter_fixture import table_of

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.mix import Mix
from pyserini_ance.negatives.random import Random
from pyserini_ance.negatives.source import (
    MiningContext,
    TableSource,
    mine_in_shares,
    warning_of_random_negatives,
)
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.recipe.components import SettingError, component_class


def table(*candidates: list[int]) -> NegativeTable:
    candidates = np.array(candidates, np.int32)
    anchors, scores = np.arange(len(candidates)), candidates.astype(np.float32)
    return NegativeTable("query", "document", anchors, candidates, scores, "ann")


def test_random_draws_are_uniform_over_non_positives(split_of):
    anchor_set, rng = AnchorSet(split_of([2], [0, 1, 3]), "query", 5), np.random.default_rng(0)
    drawn = Random(num_negatives=2).draw(np.zeros(6000, np.int32), None, anchor_set, rng)
    pairs = Counter(map(tuple, drawn.tolist()))
    assert set(pairs) == set(permutations([0, 1, 3, 4], 2))
    expected = 6000 / 12
    # 11 degrees of freedom, p = 0.001
    assert sum((count - expected) ** 2 / expected for count in pairs.values()) < 31.3


@pytest.mark.parametrize("source", [Random(num_negatives=3), Ann(num_negatives=3)])
def test_too_few_documents_are_rejected_before_training(split_of, source):
    with pytest.raises(ValueError, match="num_negatives=3 negatives, but query q1 has only 2: 3 of"):
        source.check_data(AnchorSet(split_of([2], [0, 1, 3]), "query", 5))
    source.check_data(AnchorSet(split_of([2], [0, 1, 3]), "query", 6))


def test_queries_with_too_few_candidates_are_counted():
    assert Ann(num_negatives=2).num_short(table([1, PADDING], [2, 3], [PADDING, PADDING])) == 2
    assert Ann(num_negatives=2).num_short(table([1, 2])) == 0


@pytest.mark.parametrize(("num_short", "said"), [(0, None), (1, None), (2, "2 of 10 queries (20%) have too")])
def test_more_than_a_tenth_of_random_negatives_is_told_with_what_dropped_most(num_short, said):
    mined = replace(table(*[[1, 2]] * 10), dropped={"known positives": 0, "relative_margin": 1234})
    warning = warning_of_random_negatives(mined, num_short)
    assert (warning and said in warning and "dropped: relative_margin 1,234)" in warning) == (said and True)


@pytest.mark.parametrize(("least", "kept"), [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [0, 1]), (3, [1])])
def test_anchors_with_fewer_than_min_candidates_leave_the_table(split_of, snapshot_of, least, kept):
    positives = [0, 1], [0], [0, 1, 2]  # of 4 documents
    snapshot = snapshot_of(split_of(*positives), [[1], [1], [1]], [[4], [3], [2], [1]])
    source, anchor_set = Ann(min_candidates=least), snapshot.anchor_set("query")
    table = mine_in_shares(source, snapshot, anchor_set, MiningContext())
    whole = table_of(Ann(), snapshot, anchor_set)
    assert table.anchors.tolist() == kept
    for name in ("candidates", "scores", "positive_ranks", "margins"):
        assert np.array_equal(getattr(table, name), getattr(whole, name)[kept])


def test_a_table_without_any_anchor_is_an_error(split_of, snapshot_of):
    snapshot = snapshot_of(split_of([0], [1]), [[1], [1]], [[4], [3], [2]])
    with pytest.raises(SettingError, match="none of 2 queries has min_candidates=3 candidates"):
        mine_in_shares(Ann(min_candidates=3), snapshot, snapshot.anchor_set("query"), MiningContext())


class Own(TableSource):
    def mine(self, snapshot, anchor_set, context):
        raise ZeroDivisionError


@pytest.mark.parametrize("source", [Own(), Mix(sources=[Own()])])
def test_what_an_own_source_raises_names_it(split_of, snapshot_of, source):
    snapshot = snapshot_of(split_of([0]), [[1]], [[1], [2]])
    with pytest.raises(ZeroDivisionError) as error:
        mine_in_shares(source, snapshot, snapshot.anchor_set("query"), MiningContext())
    assert error.value.__notes__[0] == f"raised in mine of {__name__}:Own"


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("live", {}, "cannot serve a term with `anchor: document`"),
        ("bm25", {}, "cannot serve a term with `anchor: document`"),
        ("ann", {"top_k_unit": "passage"}, "top_k_unit: passage counts passages of documents"),
    ],
)
def test_sources_of_documents_cannot_serve_documents(split_of, kind, settings, message):
    source = component_class("negatives", kind)(**settings)
    source.check_data(AnchorSet(split_of([0], [1]), "query", 9))
    with pytest.raises(ValueError, match=message):
        source.check_data(AnchorSet(split_of([0], [1]), "document", 2))
