from dataclasses import replace

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.mix import Momentum, concatenate
from pyserini_ance.negatives.source import MiningContext


@pytest.fixture
def snapshot(split_of, snapshot_of):
    return snapshot_of(split_of([1], [4]), [[1, 0], [0, 1]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]])


def test_all_previous_tables_are_concatenated(snapshot):
    previous_stage = [
        Ann(top_k=top_k).mine(snapshot, snapshot.anchor_set("query")).of_generation(name)
        for top_k, name in ((2, "a-00000000"), (1, "a-00000004"))
    ]
    table = Momentum().mine(
        snapshot, snapshot.anchor_set("query"), MiningContext("b-00000000", tuple(previous_stage))
    )
    assert table.candidates.tolist() == [[0, 2, 0], [3, 2, 3]]
    assert table.origin_counts() == {"ann of a-00000000": 4, "ann of a-00000004": 2}
    assert (table.source, table.dropped) == ("momentum", {})


def test_promotions_end_with_their_stage_and_those_of_a_mix_are_those_of_its_tables(snapshot):
    table = Ann(top_k=2).mine(snapshot, snapshot.anchor_set("query")).of_generation("a-00000000")
    first, second = (
        replace(table, promoted=np.array(pairs, np.int32)) for pairs in ([[0, 4]], [[0, 3], [0, 4]])
    )
    both = concatenate([first, table, second], "mix", {}, World())
    assert both.promoted.tolist() == [[0, 3], [0, 4]]
    assert concatenate([table], "mix", {}, World()).promoted is None
    context = MiningContext("b-00000000", (both,))
    assert Momentum().mine(snapshot, snapshot.anchor_set("query"), context).promoted is None


def test_an_anchor_that_the_previous_tables_lack_has_no_candidates(snapshot):
    whole = snapshot.anchor_set("query")
    previous = Ann(top_k=2).mine(snapshot, whole).of_generation("a-00000000")
    short = previous.of_anchors(previous.anchors[1:])
    table = Momentum().mine(snapshot, whole, MiningContext("b-00000000", (short,)))
    assert table.anchors.tolist() == previous.anchors.tolist() and table.counts.tolist()[0] == 0
    assert table.candidates[1:].tolist() == previous.candidates[1:].tolist()
    assert table.scores[1:].tolist() == previous.scores[1:].tolist()
