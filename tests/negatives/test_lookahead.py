import numpy as np
import pytest

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.table import PADDING


def test_candidates_are_the_neighbours_of_the_first_positive(split_of, snapshot_of):
    queries, documents = [[9, 0], [0, 9]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]]
    table = Lookahead(depth=2).mine(snapshot_of(split_of([4, 3], [0]), queries, documents), "query")
    assert table.candidates.tolist() == [[2, 1], [1, 2]]  # not what the queries are near: documents 0 and 4
    assert table.scores.tolist() == [[8, 4], [12, 8]]
    assert (table.source, table.dropped) == ("lookahead", {"known positives": 3})


@pytest.mark.parametrize("anchor", ["query", "document"])
@pytest.mark.parametrize("depth", [1, 7, 100])
def test_table_agrees_with_brute_force(anchor, depth, split_of, snapshot_of):
    rng = np.random.default_rng(1)
    positives = [rng.choice(40, count, replace=False).tolist() for count in (1, 3, 25, 1, 2, 1)]
    vectors = {"query": rng.integers(-2, 3, (6, 3)), "document": rng.integers(-2, 3, (40, 3))}  # small integers: many scores tie
    relevant = dict(enumerate(positives))
    if anchor == "document":
        relevant = {d: [q for q, known in enumerate(positives) if d in known] for d in sorted(set().union(*positives))}
    table = Lookahead(depth=depth).mine(snapshot_of(split_of(*positives), *vectors.values()), anchor)
    others = vectors[table.candidate_side]
    assert table.anchors.tolist() == list(relevant)
    for place, known in enumerate(relevant.values()):
        scores = others @ others[known[0]]
        ranked = [row for row in np.lexsort((np.arange(len(others)), -scores)).tolist() if row not in known][:depth]
        padding = [PADDING] * (table.candidates.shape[1] - len(ranked))
        assert table.candidates[place].tolist() == ranked + padding
        assert table.scores[place].tolist() == [*scores[ranked].tolist(), *[-np.inf] * len(padding)]


def test_queries_that_share_a_positive_share_a_search_and_each_keeps_its_own_positives_out(split_of, snapshot_of):
    snapshot, searched = snapshot_of(split_of([2], [2, 3], [0]), np.eye(3), np.arange(15).reshape(5, 3)), []
    search = snapshot.search
    snapshot.search = lambda side, rows, over, k: searched.append((side, rows.tolist(), over)) or search(side, rows, over, k)
    table = Lookahead(depth=2).mine(snapshot, "query")
    assert searched == [("document", [0, 2], "document")]
    assert table.candidates.tolist() == [[4, 3], [4, 1], [4, 3]]


def test_it_leaves_the_queries_own_ranking_alone(split_of, snapshot_of):
    snapshot = snapshot_of(split_of([1], [4]), [[1, 0], [0, 1]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]])
    Lookahead(depth=2).mine(snapshot, "query")
    assert snapshot.ranking("query") is None
    assert Ann(depth=1).mine(snapshot, "query").candidates.tolist() == [[0], [3]]


def test_guards_look_at_what_it_finds_and_have_no_score_of_the_positive_to_compare_with(split_of, snapshot_of):
    snapshot = snapshot_of(split_of([4, 3], [0]), [[9, 0], [0, 9]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]])
    floor = {"kind": "rank_floor", "ranks": 3}  # of the rankings 4 3 2 1 0 and 0 1 2 3 4
    table = Lookahead(depth=1, guards=[floor]).mine(snapshot, "query")
    assert table.candidates.tolist() == [[1], [3]] and table.dropped["rank_floor"] == 3
    with pytest.raises(ValueError, match="guard ratio compares scores with the positive's, but lookahead gives positives no score; leave the"):
        Lookahead(depth=1, guards=["duplicates", {"kind": "ratio", "ratio": 0.9}])


def test_in_a_chunk_it_serves_the_anchors_of_the_chunk(split_of, snapshot_of):
    snapshot = snapshot_of(split_of([2], [2, 3], [0]), np.eye(3), np.arange(15).reshape(5, 3))
    whole = Lookahead(depth=2).mine(snapshot, "query")
    with snapshot.only(np.array([1, 2])):
        part = Lookahead(depth=2).mine(snapshot, "query")
    assert part.anchors.tolist() == [1, 2] and part.candidates.tolist() == whole.candidates[1:].tolist()
