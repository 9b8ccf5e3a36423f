import numpy as np
import pytest

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.table import PADDING


def test_candidates_are_the_best_that_are_no_positives(split_of, snapshot_of):
    queries, documents = [[1, 0], [0, 1]], [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]]
    table = Ann(depth=3).mine(snapshot_of(split_of([1], [4, 2]), queries, documents), "query")
    assert table.candidates.tolist() == [[0, 2, 3], [3, 1, 0]]
    assert table.scores.tolist() == [[4, 2, 1], [3, 1, 0]]
    assert (table.anchors.tolist(), table.source) == ([0, 1], "ann")
    assert table.dropped == {"known positives": 3}


@pytest.mark.parametrize("depth", [1, 10, 60, 200])
def test_table_agrees_with_brute_force(split_of, snapshot_of, depth):
    rng = np.random.default_rng(0)
    positives = [rng.choice(60, count, replace=False).tolist() for count in (1, 2, 25, 1, 58)]
    queries, documents = rng.integers(-2, 3, (5, 3)), rng.integers(-2, 3, (60, 3))  # small integers: many scores tie
    table = Ann(depth=depth).mine(snapshot_of(split_of(*positives), queries, documents), "query")
    dropped = 0
    for query, known in enumerate(positives):
        scores = documents @ queries[query]
        dropped += sum(row in known for row in np.lexsort((np.arange(60), -scores))[: depth + 58])
        ranked = [row for row in np.lexsort((np.arange(60), -scores)).tolist() if row not in known][:depth]
        padding = [PADDING] * (table.candidates.shape[1] - len(ranked))
        assert table.candidates[query].tolist() == ranked + padding
        assert table.scores[query].tolist() == [*scores[ranked].tolist(), *[-np.inf] * len(padding)]
    assert table.dropped == {"known positives": dropped}


def test_a_deeper_search_is_made_once_and_cut_for_others(split_of, snapshot_of):
    documents = np.arange(12, dtype=float)[:, None]
    snapshot = snapshot_of(split_of([3], [4]), [[1], [-1]], documents)
    deep, shallow = (Ann(depth=depth).mine(snapshot, "query") for depth in (8, 2))
    assert shallow.candidates.tolist() == deep.candidates[:, :2].tolist() == [[11, 10], [0, 1]]
    assert snapshot.ranking("query")[0].shape == (2, 9)


def test_guards_take_out_what_they_mark_and_as_many_more_are_fetched(split_of, snapshot_of):
    queries, documents = [[1, 0], [0, 1]], [[10, 0], [9.8, 1], [9.4, 2], [1, 3], [0, 4], [-1, 5], [-2, 6]]
    snapshot = snapshot_of(split_of([0], [5, 2]), queries, documents)
    table = Ann(depth=2, guards=[{"kind": "ratio", "ratio": 0.95}], spare=1).mine(snapshot, "query")
    assert table.candidates.tolist() == [[2, 3], [4, 3]]
    assert table.dropped == {"known positives": 3, "ratio": 2}
    floored = Ann(depth=2, guards=[{"kind": "rank_floor", "ranks": 3}], spare=0).mine(snapshot, "query")
    assert floored.candidates.tolist() == [[3, 4], [3, 1]] and floored.dropped == {"known positives": 3, "rank_floor": 4}


@pytest.mark.parametrize("anchor", ["query", "document"])
def test_positives_have_the_scores_of_a_slow_loop(split_of, snapshot_of, anchor):
    rng = np.random.default_rng(0)
    positives = [rng.choice(20, count, replace=False).tolist() for count in (1, 2, 5, 1)]
    queries, documents = rng.standard_normal((4, 3)), rng.standard_normal((20, 3))
    snapshot = snapshot_of(split_of(*positives), queries, documents)
    for chunk in (None, np.array([1, 2])):
        with snapshot.only(chunk):
            anchors = snapshot.direction(anchor).anchors.tolist()
            pairs = {a: [(a, d) for d in positives[a]] if anchor == "query" else [(q, a) for q in range(4) if a in positives[q]] for a in anchors}
            expected = [max(queries[q] @ documents[d] for q, d in pairs[a]) for a in anchors]
            np.testing.assert_allclose(snapshot.positive_scores(anchor), expected, rtol=1e-5)


def test_within_a_chunk_only_its_queries_or_their_documents_are_anchors(split_of, snapshot_of):
    rng = np.random.default_rng(0)
    snapshot = snapshot_of(split_of([0], [1, 7], [7, 2], [3]), rng.standard_normal((4, 3)), rng.standard_normal((9, 3)))
    whole = {side: Ann(depth=2).mine(snapshot, side) for side in ("query", "document")}
    with snapshot.only(np.array([1, 2])):
        parts = {side: Ann(depth=2).mine(snapshot, side) for side in ("query", "document")}
    assert (parts["query"].anchors.tolist(), parts["document"].anchors.tolist()) == ([1, 2], [1, 2, 7])
    for side, part in parts.items():
        assert part.candidates.tolist() == whole[side].candidates[whole[side].positions(part.anchors)].tolist()
    assert snapshot.direction("query").anchors.tolist() == [0, 1, 2, 3]
