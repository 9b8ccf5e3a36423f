from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from helpers.filter_fixture import table_of

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.mix import Mix, Momentum, concatenate, sample, shares
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import PADDING, NegativeTable

ANN, AHEAD, MOMENTUM = {"kind": "ann", "top_k": 12}, {"kind": "lookahead", "top_k": 9}, {"kind": "momentum"}
NEW = {"kind": "mix", "sources": [ANN, AHEAD]}
SIZES = {(0.5, 0.5): [16, 15], (0.3, 0.7): [3, 7], (1, 1, 1): [67, 67, 66], (1e-9, 1): [0, 5]}


@pytest.fixture(scope="module")
def snapshot(split_of, snapshot_of):
    rng = np.random.default_rng(2)
    positives = [rng.choice(30, count, replace=False).tolist() for count in (1, 3, 1, 2) * 10]
    return snapshot_of(split_of(*positives), rng.normal(size=(40, 3)), rng.normal(size=(30, 3)))


@pytest.fixture(scope="module")
def context(snapshot) -> MiningContext:
    """The context of a second episode; the first episode's table has all ANN and lookahead candidates."""
    before = MiningContext("a-00000000", (), (42, 0, 0))
    first = Mix.model_validate(NEW).mine(snapshot, snapshot.anchor_set("query"), before)
    return MiningContext("b-00000000", (first,), (42, 1, 0))


def found(table) -> list[list[int]]:
    return [[row for row in rows if row != PADDING] for rows in table.candidates.tolist()]


def test_without_weights_all_candidates_are_concatenated(snapshot, context):
    anchor_set = snapshot.anchor_set("query")
    ann, ahead = (table_of(source, snapshot, anchor_set) for source in (Ann(top_k=12), Lookahead(top_k=9)))
    mixed = Mix.model_validate({"sources": [NEW, MOMENTUM]}).mine(snapshot, anchor_set, context)
    assert found(mixed) == [(a + b) * 2 for a, b in zip(found(ann), found(ahead), strict=True)]
    total = {"ann": int(ann.counts.sum()), "lookahead": int(ahead.counts.sum())}
    of_both = {f"{source} of {stage}-00000000": total[source] for stage in "ba" for source in total}
    assert mixed.origin_counts() == of_both
    dropped = ann.dropped["known positives"] + ahead.dropped["known positives"]
    assert (mixed.source, mixed.dropped) == ("mix", {"known positives": dropped})


def test_weights_are_the_shares_of_samples(snapshot, context):
    """alpha 0.5, beta 0.25: of 16 candidates, 8 are momentum, and of the 8 new ones 2 are lookahead."""
    new = {**NEW, "weights": [0.75, 0.25], "top_k": 8}
    source = Mix.model_validate({"sources": [new, MOMENTUM], "weights": [0.5, 0.5], "top_k": 16})
    table = source.mine(snapshot, snapshot.anchor_set("query"), context)
    pools = {"ann of b-00000000": found(table_of(Ann(top_k=12), snapshot))}
    pools["lookahead of b-00000000"] = found(table_of(Lookahead(top_k=9), snapshot))
    pools["momentum"] = found(context.previous_stage[0])
    for place in range(40):
        parts = {"ann of b-00000000": [], "lookahead of b-00000000": [], "momentum": []}
        line = zip(table.candidates[place].tolist(), table.origin[place].tolist(), strict=True)
        for candidate, origin in line:
            name = str(table.origins[origin])
            parts[name if name in parts else "momentum"].append(candidate)
        assert [len(part) for part in parts.values()] == [6, 2, 8]
        for name, part in parts.items():
            assert not Counter(part) - Counter(pools[name][place])
            ranks = [pools[name][place].index(row) for row in part if pools[name][place].count(row) == 1]
            assert ranks == sorted(ranks)


def test_duplicates_are_dropped_on_request(snapshot, context):
    settings = ({"sources": [NEW, MOMENTUM], "duplicates": duplicates} for duplicates in ("keep", "drop"))
    mixes = (Mix.model_validate(of_mix) for of_mix in settings)
    kept, once = (one.mine(snapshot, snapshot.anchor_set("query"), context) for one in mixes)
    assert found(once) == [list(dict.fromkeys(row)) for row in found(kept)]
    assert once.dropped["repeats"] == int(kept.counts.sum() - once.counts.sum()) > 0


@pytest.mark.parametrize("weights, sizes", SIZES.items())
def test_shares_add_up(weights, sizes):
    assert shares(weights, sum(sizes)) == sizes


def test_a_sample_is_uniform_and_in_rank_order():
    rows = np.tile(np.array([4, 5, 6, 7], np.int32), (6000, 1))
    table = NegativeTable("query", "document", np.arange(6000), rows, np.zeros(rows.shape), "ann")
    drawn = sample(table, 2, np.random.default_rng(0))
    counts = Counter(map(tuple, drawn.candidates.tolist()))
    assert set(counts) == set(combinations([4, 5, 6, 7], 2))
    # 5 degrees of freedom, p = 0.001
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 20.5


@pytest.fixture
def small(split_of, snapshot_of):
    return snapshot_of(split_of([1], [4]), [[1, 0], [0, 1]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]])


def test_all_previous_tables_are_concatenated(small):
    mined = {n: table_of(Ann(top_k=n), small) for n in (2, 1)}
    previous_stage = [mined[2].of_generation("a-00000000"), mined[1].of_generation("a-00000004")]
    context = MiningContext("b-00000000", tuple(previous_stage))
    table = Momentum().mine(small, small.anchor_set("query"), context)
    assert table.candidates.tolist() == [[0, 2, 0], [3, 2, 3]]
    assert table.origin_counts() == {"ann of a-00000000": 4, "ann of a-00000004": 2}
    assert (table.source, table.dropped) == ("momentum", {})


def test_promotions_end_with_their_stage_and_those_of_a_mix_are_those_of_its_tables(small):
    table = table_of(Ann(top_k=2), small).of_generation("a-00000000")
    promoted = (np.array(pairs, np.int32) for pairs in ([[0, 4]], [[0, 3], [0, 4]]))
    first, second = (replace(table, promoted=pairs) for pairs in promoted)
    both = concatenate([first, table, second], "mix", {}, World())
    assert both.promoted.tolist() == [[0, 3], [0, 4]]
    assert concatenate([table], "mix", {}, World()).promoted is None
    lists_it = replace(table, promoted=np.array([[0, 2]], np.int32))
    context = MiningContext("b-00000000", (both, lists_it))
    known = small.anchor_set("query").with_positives(np.array([[1, 3]], np.int32))  # of this refresh
    found = Momentum().mine(small, known, context)
    assert found.promoted is None and 2 in table.candidates[0] and 2 not in found.candidates[0]
    assert 3 in table.candidates[1] and 3 not in found.candidates[1]
    assert found.counts.tolist() == [4, 4]


def test_an_anchor_that_the_previous_tables_lack_has_no_candidates(small):
    whole = small.anchor_set("query")
    previous = table_of(Ann(top_k=2), small, whole).of_generation("a-00000000")
    short = previous.of_anchors(previous.anchors[1:])
    table = Momentum().mine(small, whole, MiningContext("b-00000000", (short,)))
    assert table.anchors.tolist() == previous.anchors.tolist() and table.counts.tolist()[0] == 0
    assert table.candidates[1:].tolist() == previous.candidates[1:].tolist()
    assert table.scores[1:].tolist() == previous.scores[1:].tolist()
