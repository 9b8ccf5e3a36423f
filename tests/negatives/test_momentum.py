import numpy as np
import pytest

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.momentum import Momentum


@pytest.fixture
def snapshot(split_of, snapshot_of):
    return snapshot_of(split_of([1], [4]), [[1, 0], [0, 1]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]])


def test_all_former_tables_are_taken_over_as_they_are(snapshot):
    former = [Ann(depth=depth).mine(snapshot, "query").of_generation(name) for depth, name in ((2, "a-00000000"), (1, "a-00000004"))]
    table = Momentum().mine(snapshot, "query", Episode("b-00000000", tuple(former)))
    assert table.candidates.tolist() == [[0, 2, 0], [3, 2, 3]]
    assert table.origin_counts() == {"ann of a-00000000": 4, "ann of a-00000004": 2}
    assert (table.source, table.dropped) == ("momentum", {})


def test_a_candidate_that_stands_there_twice_is_drawn_twice_as_often_and_may_be_drawn_twice(snapshot):
    former = tuple(Ann(depth=depth).mine(snapshot, "query").of_generation("a-00000000") for depth in (2, 1))
    table = Momentum().mine(snapshot, "query", Episode("b-00000000", former))
    rows, rng = np.zeros(9000, int), np.random.default_rng(0)
    one = Momentum().draw(rows, table, snapshot.direction("query"), rng)
    assert (one == 0).mean() == pytest.approx(2 / 3, abs=0.02)
    two = Momentum(per_query=2).draw(rows, table, snapshot.direction("query"), rng)
    assert ((two == 0).all(1)).mean() == pytest.approx(1 / 3, abs=0.02)


def test_repeats_stay_where_random_ones_fill_up(snapshot):
    former = tuple(Ann(depth=1).mine(snapshot, "query").of_generation("a-00000000") for _ in range(2))
    table = Momentum().mine(snapshot, "query", Episode("b-00000000", former))
    source = Momentum(per_query=3, when_short="random")
    assert source.check(table, snapshot.collection, snapshot.split) == 2
    drawn = source.draw(np.tile([0, 1], 200), table, snapshot.direction("query"), np.random.default_rng(0)).tolist()
    assert {tuple(row[:2]) for row in drawn} == {(0, 0), (3, 3)}
    assert {row[2] for row in drawn[::2]} == {2, 3, 4} and {row[2] for row in drawn[1::2]} == {0, 1, 2}


def test_without_a_former_stage_it_says_so(snapshot):
    with pytest.raises(ValueError, match="no tables of a former stage; a first stage leaves this source out"):
        Momentum().mine(snapshot, "query")
