import numpy as np
import pytest

from pyserini_ance.data import known_positives as module
from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.data.known_positives import grades_of, is_known_positive


@pytest.mark.parametrize(("most", "lines"), [(0, 7), (5, 3), (16, 4096)])
def test_known_positive_agrees_with_a_slow_loop(split_of, most, lines, monkeypatch):
    monkeypatch.setattr(module, "MOST_COMPARED", most)
    monkeypatch.setattr(module, "LINES_PER_BLOCK", lines)
    rng = np.random.default_rng(0)
    positives = [rng.choice(40, rng.integers(1, 30), replace=False).tolist() for _ in range(20)]
    known_positives = split_of(*positives).known_positives("query")
    rows, documents = rng.integers(0, 20, 50), rng.integers(-1, 40, (50, 12))  # -1 is padding
    expected = [[int(d) in positives[row] for d in line] for row, line in zip(rows, documents, strict=True)]
    assert is_known_positive(known_positives, rows, documents).tolist() == expected
    assert (
        is_known_positive(known_positives, rows.astype(np.int32), documents.astype(np.int32)).tolist()
        == expected
    )


def test_grades_agree_with_a_slow_loop():
    rng = np.random.default_rng(0)
    judged = {
        (query, int(d)): int(rng.integers(0, 4))
        for query in range(20)
        for d in rng.choice(40, rng.integers(1, 30), replace=False)
    }
    judged |= {(query, 0): 3 for query in range(20)}  # each has a positive
    known_positives = Split(
        "train", None, Qrels.of(*zip(*judged, strict=True), list(judged.values()), 20, threshold=2)
    ).known_positives("query")
    rows, documents = rng.integers(0, 20, 50), rng.integers(-1, 40, (50, 12))  # -1 is padding
    relevant = {pair: grade for pair, grade in judged.items() if grade > 1}
    expected = [
        [relevant.get((row, d), 0) for d in line]
        for row, line in zip(rows.tolist(), documents.tolist(), strict=True)
    ]
    assert grades_of(known_positives, rows, documents).tolist() == expected
    assert grades_of(known_positives, rows.astype(np.int32), documents.astype(np.int32)).tolist() == expected


@pytest.mark.parametrize("most", [0, 16])
def test_rows_near_the_maximum_of_int32_are_distinguished(split_of, most, monkeypatch):
    monkeypatch.setattr(module, "MOST_COMPARED", most)
    last = 2**31 - 2
    known_positives = split_of([last], [0], [last - 1]).known_positives("query")
    rows, documents = (
        np.arange(3, dtype=np.int32),
        np.array([[last, 0], [last, 0], [last, last - 1]], np.int32),
    )
    assert is_known_positive(known_positives, rows, documents).tolist() == [
        [True, False],
        [False, True],
        [False, True],
    ]
