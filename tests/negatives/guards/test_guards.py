import numpy as np

from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.negatives.guards import grades_of, keep, known_positive, take_out
from pyserini_ance.negatives.table import PADDING


def test_known_positive_by_hand(split_of):
    relation = split_of([2], [0, 3], [2]).relation("query")
    found = known_positive(relation, np.array([1, 0, 1]), np.array([[3, 2, 0], [3, 2, 0], [PADDING, 1, 3]]))
    assert found.tolist() == [[True, False, True], [False, True, False], [False, False, True]]


def test_known_positive_agrees_with_a_slow_loop(split_of):
    rng = np.random.default_rng(0)
    positives = [rng.choice(40, rng.integers(1, 30), replace=False).tolist() for _ in range(20)]
    relation = split_of(*positives).relation("query")
    rows, documents = rng.integers(0, 20, 50), rng.integers(-1, 40, (50, 12))  # -1 is padding
    expected = [[int(d) in positives[row] for d in line] for row, line in zip(rows, documents, strict=True)]
    assert known_positive(relation, rows, documents).tolist() == expected
    assert known_positive(relation, rows.astype(np.int32), documents.astype(np.int32)).tolist() == expected


def test_known_positives_of_documents_are_their_queries(split_of):
    relation = split_of([2], [0, 3], [2]).relation("document")
    assert known_positive(relation, np.array([2, 3]), np.array([[0, 1, 2], [0, 1, 2]])).tolist() == [[True, False, True], [False, True, False]]


def test_grades_agree_with_a_slow_loop():
    rng = np.random.default_rng(0)
    judged = {(query, int(d)): int(rng.integers(0, 4)) for query in range(20) for d in rng.choice(40, rng.integers(1, 30), replace=False)}
    judged |= {(query, 0): 3 for query in range(20)}  # each has a positive
    relation = Split("train", None, Qrels.of(*zip(*judged, strict=True), list(judged.values()), 20, threshold=2)).relation("query")
    rows, documents = rng.integers(0, 20, 50), rng.integers(-1, 40, (50, 12))  # -1 is padding
    relevant = {pair: grade for pair, grade in judged.items() if grade > 1}
    expected = [[relevant.get((row, d), 0) for d in line] for row, line in zip(rows.tolist(), documents.tolist(), strict=True)]
    assert grades_of(relation, rows, documents).tolist() == expected
    assert grades_of(relation, rows.astype(np.int32), documents.astype(np.int32)).tolist() == expected


def test_rows_near_the_end_of_int32_are_told_apart(split_of):
    last = 2**31 - 2
    relation = split_of([last], [0], [last - 1]).relation("query")
    rows, documents = np.arange(3, dtype=np.int32), np.array([[last, 0], [last, 0], [last, last - 1]], np.int32)
    assert known_positive(relation, rows, documents).tolist() == [[True, False], [False, True], [False, True]]


def test_keep_takes_the_first_of_each_row_in_order_and_pads():
    candidates, scores = np.array([[7, 5, 3, 1], [2, 4, 6, 8]]), np.array([[4.0, 3, 2, 1], [4, 3, 2, 1]])
    kept = np.array([[False, True, True, True], [False, False, True, False]])
    candidates, scores = keep(kept, 2, (candidates, np.int32(PADDING)), (scores, np.float32(-np.inf)))
    assert candidates.tolist() == [[5, 3], [6, PADDING]]
    assert scores.tolist() == [[3, 2], [2, -np.inf]]
    assert (candidates.dtype, scores.dtype) == (np.int32, np.float32)


def test_what_filters_take_out_agrees_with_a_slow_loop():
    rng = np.random.default_rng(0)
    candidates, scores = rng.integers(-1, 40, (30, 12)), rng.random((30, 12))  # -1 is padding
    marked = {name: rng.random((30, 12)) < 0.3 for name in ("first", "second")}
    found, found_scores, dropped = take_out(candidates, scores, marked, 5)
    expected = {"first": 0, "second": 0}
    for row in range(30):
        kept = []
        for place in range(12):
            by = next((name for name in marked if marked[name][row, place]), None)
            if candidates[row, place] == PADDING:
                continue
            if by:
                expected[by] += 1
            else:
                kept.append(place)
        kept, padding = kept[:5], 5 - len(kept[:5])
        assert found[row].tolist() == [*candidates[row, kept], *[PADDING] * padding]
        assert found_scores[row].tolist() == [*scores[row, kept].astype(np.float32), *[-np.inf] * padding]
    assert dropped == expected and list(dropped) == ["first", "second"]


def test_a_filter_that_takes_nothing_out_says_so():
    candidates, scores = np.array([[1, PADDING]]), np.zeros((1, 2))
    assert take_out(candidates, scores, {"a": np.array([[False, True]])}, 2)[2] == {"a": 0}
